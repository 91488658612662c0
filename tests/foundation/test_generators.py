from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from palaestra.foundation.generators import FEW, generator, hashed, remember


@pytest.mark.parametrize("seed", [0, 1, 5, 2**30, 2**32 - 1, 2**32, 2**64 - 1, 2**100 + 3, np.int64(7)])
def test_the_numbers_are_those_of_numpys_own(seed: int) -> None:
    for _ in range(2):  # the second is remembered
        mine, theirs = generator(seed), np.random.default_rng(seed)
        assert mine.bit_generator.state == theirs.bit_generator.state
        assert mine.random(5).tolist() == theirs.random(5).tolist()


def test_generators_of_one_seed_share_nothing() -> None:
    first, again = generator(3), generator(3)
    first.random(10)
    assert again.random() == np.random.default_rng(3).random()
    for copied in (copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        assert copied.bit_generator.state == first.bit_generator.state


def test_a_negative_seed_is_refused_as_numpy_does() -> None:
    with pytest.raises(ValueError, match="non-negative"):
        generator(-1)


def test_seeds_that_are_hashed_together_give_the_same_words() -> None:
    seeds = np.concatenate([np.arange(40), [2**31 - 1, 2**32 - 1, 2**32, 2**63]]).astype(np.uint64)
    seeds = np.append(seeds, np.random.default_rng(0).integers(0, 2**64, 200, dtype=np.uint64))
    single = [np.random.SeedSequence(int(seed)).generate_state(4, np.uint64) for seed in seeds]
    np.testing.assert_array_equal(hashed(seeds), single)


def test_remembered_seeds_are_those_that_are_drawn_from() -> None:
    seeds = [2**30 + 7 * i for i in range(FEW)]
    remember([*seeds, *seeds, 2**70, -1])
    for seed in (*seeds, 2**70):
        assert generator(seed).random() == np.random.default_rng(seed).random()
    remember([1])  # too few to pay, and those before stay
    assert generator(1).random() == np.random.default_rng(1).random()
