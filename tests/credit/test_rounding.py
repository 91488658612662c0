"""Numbers that differ by rounding only are equal, whatever the order of the rows; missing rewards void nothing else."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.algebra import samples
from palaestra.algebra.parse import parse
from palaestra.algebra.signals import rank
from palaestra.algebra.turns import Turns
from palaestra.credit import comam, oprl, spo_chain

NOISY = Turns({"group": [0] * 3, "episode": [0, 1, 2], "agent": ["a"] * 3, "reward": [0.1 + 0.2, 0.3, 0.0]})
EQUAL = NOISY.with_column(reward=parse("where(reward > 0, 1, 0)"))


@pytest.mark.parametrize(
    "text",
    [
        "win_rate(reward)", "self_play_preference(reward)", "rank_reward(reward)", "dominance(reward, reward)",
        "rank_reward(reward, ties='ordinal')", "rank_among(reward)", "ndcg(reward, reward > 0)",
    ],
)  # fmt: skip
def test_rounding_splits_no_tie(text: str) -> None:
    np.testing.assert_allclose(np.asarray(parse(text).evaluate(NOISY)), np.asarray(parse(text).evaluate(EQUAL)))


def test_numbers_that_really_differ_stay_apart() -> None:
    x = np.array([1.0, 1.0 + 1e-6, 1e-3, 1e-3 + 1e-8, -1.0])
    np.testing.assert_array_equal(samples.without_noise(x), x)
    turns = Turns({"episode": np.arange(5), "x": x})
    np.testing.assert_array_equal(rank("x", over=()).evaluate(turns), [4, 5, 2, 3, 1])


def test_comam_does_not_see_the_order_of_rows() -> None:
    rng = np.random.default_rng(0)
    number = 240
    episode = np.repeat(np.arange(40), 6)
    turns = Turns({
        "group": episode // 8, "episode": episode, "agent": np.tile(["a", "b"], number // 2),
        "turn": np.tile(np.arange(6), 40), "reward": rng.integers(0, 3, number) / 10.0,
        "success": (episode % 3 == 0).astype(float),
    })  # fmt: skip
    wanted = np.asarray(comam().evaluate(turns))
    for _ in range(5):
        order = rng.permutation(number)
        found = np.asarray(comam().evaluate(Turns(turns.frame[order])))
        np.testing.assert_allclose(found, wanted[order], atol=1e-9)


def test_spo_chain_needs_the_reward_of_the_last_turn_only() -> None:
    keys = {"group": [0] * 3, "episode": [0] * 3, "agent": ["a"] * 3, "turn": [0, 1, 2], "value": [0.2, 0.5, 0.9]}
    sparse = Turns(keys | {"reward": [None, None, 1.0]})
    dense = Turns(keys | {"reward": [0.0, 0.0, 1.0]})
    np.testing.assert_allclose(spo_chain().evaluate(sparse), spo_chain().evaluate(dense))
    unscored = Turns(keys | {"reward": pl.Series([None] * 3, dtype=pl.Float64)})
    assert np.isnan(np.asarray(spo_chain().evaluate(unscored))).all()


def test_unscored_episodes_are_in_no_factor_of_oprl() -> None:
    keys = {"group": [0] * 3, "episode": [0, 1, 2], "agent": ["a"] * 3, "turn": [0] * 3}
    some = Turns(keys | {"reward": [1.0, 0.0, None], "step": [1.0, 0.5, 7.0]})
    two = Turns(some.frame[:2])
    found = oprl(step="step", flavour="code").evaluate(some)
    np.testing.assert_allclose(np.asarray(found)[:2], oprl(step="step", flavour="code").evaluate(two))


@given(st.floats(-1e6, 1e6), st.integers(1, 200), st.lists(st.floats(-1e6, 1e6), max_size=5))
def test_a_mean_lies_within_what_it_is_the_mean_of(x: float, number: int, others: list[float]) -> None:
    values = np.array([x] * number + others)
    keys = np.array([0] * number + [1] * len(others))
    equal, rest = samples.Samples(values, keys, 2).means
    assert equal == x
    assert np.isnan(rest) if not others else min(others) <= rest <= max(others)


def test_equal_episodes_are_equal_whatever_their_length() -> None:
    """Ten won episodes of 1 to 10 turns, worth .7 each: nothing tells them apart."""
    episode = np.repeat(np.arange(10), np.arange(1, 11))
    last = np.diff(episode, append=10) > 0
    turns = Turns({
        "group": [0] * 55, "episode": episode, "agent": ["a"] * 55, "segment": [0] * 55, "reward": 1.0 * last,
        "subgoal_done": 1.0 * last, "first_value": [0.3] * 55, "value": [0.3] * 55, "score": [0.7] * 55,
    })  # fmt: skip
    for text in ("keep('score', between=(0.7, None))", "keep('score', between=(None, 0.7))", "digirl()", "vsc_rl()",
                 "keep('score', quantile=0.5)", "keep('score', quantile=(None, 0.5))"):  # fmt: skip
        assert (np.asarray(parse(text).evaluate(turns))[last] == 1).all(), text


@pytest.mark.parametrize("closed", [True, False])
def test_the_end_of_a_band_holds_what_differs_from_it_by_rounding(closed: bool) -> None:
    for text in ("between=(None, 0.3)", "between=(0.3, None)", "between=(0.3, 0.3)"):
        text = f"keep('reward', {text}, closed={'both' if closed else 'none'!r})"
        assert np.asarray(parse(text).evaluate(NOISY)).tolist()[:2] == [closed, closed], text
    assert np.asarray(parse("keep('reward', quantile=(1.0, 1.0))").evaluate(NOISY)).tolist() == [True, True, False]
