"""A router that sees the state of the workers."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.envs.worlds import Beach, Candidates
from palaestra.envs.worlds.candidates import by_prior, reward_without_labels
from palaestra.errors import InputError


def test_only_the_best_screened_can_be_chosen_and_the_reward_needs_no_label() -> None:
    env = Candidates()
    for seed in range(10):
        (seen,) = env.reset(seed).values()
        assert seen.mask is not None
        assert seen.mask.sum() == 3
        result = env.step({"router": seen.legal[0]})
        told = result.info
        assert result.rewards["router"] == pytest.approx(reward_without_labels(True, told["agrees"], told["latency"]))


def test_a_failure_that_is_announced_is_seen() -> None:
    env = Candidates(announced=True)
    found = set()
    for seed in range(2, 60):
        (seen,) = env.reset(seed).values()
        rows = np.asarray(seen.array).reshape(5, 6)
        if env.state.kind == 0:
            found.add((bool(seed >> 1 & 1), float(rows[0, 5])))
    assert found == {(True, 0.0), (False, 1.0)}


def test_who_never_learns_takes_the_best_of_the_warm_up() -> None:
    env = Candidates()
    (seen,) = env.reset(0).values()
    prior = np.where(seen.mask, np.asarray(seen.array).reshape(5, 6)[:, 4], -1)

    class Asked:
        observation = seen

    assert by_prior()(Asked()) == f"worker {int(prior.argmax())}"
    with pytest.raises(InputError, match="keep=0"):
        Candidates(keep=0)


def test_a_beach_is_as_mixed_as_the_rarer_type_is_there() -> None:
    env = Beach(people=4, sections=2, psi=2.0, first=0.5, weights=(0.0, 1.0))
    env.reset(0)
    result = env.step(dict(zip(env.agents, (0, 1, 0, 0), strict=True)))
    assert result.rewards["person_0"] == pytest.approx(1 / 3)
    assert result.rewards["person_1"] == 0.0
    assert result.info["capacity"]["person_0"] == pytest.approx(3 * np.exp(-1.5))
    assert result.info["difference"]["person_2"] == pytest.approx(1 / 3 - 1 / 2)
    with pytest.raises(InputError, match="two weights"):
        Beach(weights=(1.0,))
