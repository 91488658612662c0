"""Not scored is not zero: what has no reward has no credit, and does not count for what others get."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Ragged, Turns
from palaestra.credit import canon, comam, grpo, ndcg, r3, ratio, self_play_preference, spo_tokens, spread

NAN = float("nan")


def values(signal: Signal, turns: Turns) -> np.ndarray:
    found = signal.evaluate(turns)
    return np.asarray(found.values if isinstance(found, Ragged) else found, float)


def one_turn_each(**columns: Any) -> Turns:
    n = len(next(iter(columns.values())))
    return Turns({"group": [0] * n, "episode": range(n), "turn": [0] * n, "agent": ["a"] * n} | columns)


def test_an_unscored_episode_of_a_failed_group_is_not_ranked() -> None:
    tokens = [[0.5, 0.1], [0.2, 0.4], [0.3, 0.3]]
    turns = one_turn_each(reward=[0, 0, None], replayed=[False] * 3, truncated=[False] * 3, entropies=tokens)
    found, without = values(r3(), turns), values(r3(), Turns(turns.frame[:2]))
    np.testing.assert_allclose(found, [*without, NAN])
    np.testing.assert_allclose(values(r3(ranked=False), turns), values(grpo(), turns))
    cut = turns.with_column(truncated=[False, False, True])
    assert np.isnan(values(r3(), cut)[2])


def test_an_episode_without_a_place_is_in_no_ideal_order() -> None:
    turns = one_turn_each(local=[0.9, 0.6, None, 0.3], whole=[1, 0.5, 0.9, 0.25])
    np.testing.assert_allclose(values(ndcg("local", "whole"), turns), 1)
    turns = one_turn_each(local=[0.9, 0.6, 0.1, 0.3], whole=[1, 0.5, None, 0.25])
    np.testing.assert_allclose(values(ndcg("local", "whole"), turns), 1)
    full = one_turn_each(local=[0.9, 0.6, None, 0.3], whole=[1, 0.5, 0.9, 0.25])
    found = values(comam("local", "whole"), full)
    np.testing.assert_allclose(found[[0, 1, 3]], values(comam("local", "whole"), Turns(full.frame[[0, 1, 3]])))
    assert np.isnan(found[2])


def test_the_last_segment_of_an_unscored_turn_is_missing() -> None:
    turns = one_turn_each(reward=[None], values=[[0.1, 0.2, 0.3]], logprobs=[[-1.0, -1.0, -1.0]])
    np.testing.assert_allclose(values(spo_tokens(every=1), turns), [0.1, 0.1, NAN], atol=1e-7)
    given = one_turn_each(x=[[1.0, None, 2.0]], segment=[[0.0, 0.0, 1.0]])
    np.testing.assert_allclose(values(spread("x", "segment"), given), [NAN, NAN, 2])


@pytest.mark.parametrize("preference", [None, ((0.5, 0.9), (0.1, 0.5))])
def test_what_was_not_compared_is_not_preferred_half_the_time(preference: Any) -> None:
    turns = one_turn_each(item=[1.0, None, None])
    np.testing.assert_allclose(values(self_play_preference("item", preference=preference), turns), [0, NAN, NAN])


def test_a_ratio_of_something_missing_is_missing() -> None:
    turns = Turns({"a": [1.0, None, None, 1.0], "b": [0.0, 0.0, 2.0, None]})
    np.testing.assert_allclose(values(ratio("a", "b", 0.5), turns), [0.5, NAN, NAN, NAN])


def test_the_halves_are_of_episodes_that_were_scored() -> None:
    """Three scored episodes split 1 : 2; a fourth without a reward, of the lowest metric, would make it 0 : 3."""
    turns = one_turn_each(reward=[1.0, 0.0, 1.0, None, None], metric=[1.0, 2.0, 3.0, 0.0, 0.5])
    scored = Turns(turns.frame[:3])
    for options in ({}, {"mu": 0.3}, {"favour": "low", "beta": 0.1}):
        found = values(canon(metric="metric", **options), turns)  # type: ignore[arg-type]
        np.testing.assert_allclose(found[:3], values(canon(metric="metric", **options), scored))  # type: ignore[arg-type]
        assert np.isnan(found[3:]).all()
