from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.errors import InputError
from palaestra.play.streams import Streams

small = st.integers(0, 1000)


@given(seed=st.integers(0, 2**70), iteration=small, group=small, episode=small)
def test_the_same_address_gives_the_same_stream(seed: int, iteration: int, group: int, episode: int) -> None:
    draws = [Streams(seed, iteration).generator(group, episode, "a").random(5) for _ in range(2)]
    assert np.array_equal(*draws)


def test_every_part_of_the_address_counts() -> None:
    draws = {
        Streams(seed, iteration, stream).generator(group, episode, agent).integers(2**63)
        for seed in (0, 1, 12)
        for iteration in (0, 1, 12)
        for stream in ("train", "eval")
        for group in (0, 1, 12)
        for episode in (0, 1, 12)
        for agent in ("a", "b", "1/a")
    }
    assert len(draws) == 3 * 3 * 2 * 3 * 3 * 3


def test_streams_are_uniform_and_independent_of_their_neighbours() -> None:
    draws = np.array([Streams(0).generator(group, 0, "a").random(2) for group in range(4000)])
    counts = np.histogram2d(draws[:, 0], draws[:, 1], bins=5, range=[[0, 1], [0, 1]])[0]
    chi2 = ((counts - 160) ** 2 / 160).sum()
    assert chi2 < 51.2  # 24 degrees of freedom, p = 0.001; the draws are fixed
    assert abs(np.corrcoef(draws[:-1, 0], draws[1:, 0])[0, 1]) < 0.05


@given(seed=small, other=small, group=small, iteration=small)
def test_training_never_draws_a_seed_of_evaluation(seed: int, other: int, group: int, iteration: int) -> None:
    assert 0 <= Streams(seed, iteration).env_seed(group) < 2**30
    assert 2**30 <= Streams(other, iteration, "eval").env_seed(group) < 2**31


@pytest.mark.parametrize("stream", ["train", "eval"])
@pytest.mark.parametrize("sides", [2, 3, 4, 16])
def test_both_halves_reach_what_an_env_makes_of_a_seed(stream: str, sides: int) -> None:
    counts = np.bincount([Streams(0, stream=stream).env_seed(group) % sides for group in range(1600)], minlength=sides)
    assert abs(counts / (1600 / sides) - 1).max() < 0.35


def test_groups_rarely_share_a_seed() -> None:
    assert len({Streams(0).env_seed(group) for group in range(2000)}) == 2000


def test_streams_do_not_depend_on_the_process() -> None:
    code = (
        "from palaestra.play.streams import Streams as S\n"
        "print(S(3).env_seed(5), S(3).generator(1, 2, 'a').integers(2**62))"
    )
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert there == [str(Streams(3).env_seed(5)), str(Streams(3).generator(1, 2, "a").integers(2**62))]


def test_an_unknown_stream_is_named() -> None:
    with pytest.raises(InputError, match=r"stream='evaluation'.*'eval'"):
        Streams(0, 0, "evaluation")  # type: ignore[arg-type]
