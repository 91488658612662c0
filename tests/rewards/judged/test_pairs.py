"""Pairs: HERON's labels, all pairs of a key, and a learner that knows no units."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.algebra.turns import Turns
from palaestra.errors import ExpressionError, InputError
from palaestra.rewards import DecidedPairs, bradley_terry, lexicographic, lexicographic_preference, pairs, reward_of
from palaestra.testing.signal import sample_turns
from palaestra_atlas.catalog.rewards.s200_heron import FACTORS, FOUR, LABELS, SIGNS


def test_heron_worked_labels() -> None:
    first, second = (FOUR[list(side)] for side in zip(*LABELS, strict=True))
    found = lexicographic_preference(first, second, signs=SIGNS, margins=(0.5, 1.672, 0.3767))
    assert found.tolist() == list(LABELS.values())
    back = lexicographic_preference(second, first, signs=SIGNS, margins=(0.5, 1.672, 0.3767))
    assert (back == -found).all()
    equal = lexicographic_preference(FOUR, FOUR + np.array([0, 0.5, 0]), signs=SIGNS, margins=(0, 1, 1))
    assert not equal.any()
    slight = lexicographic_preference(FOUR, FOUR - np.array([0.1, 0, 0]), margins=(5.0, 5.0, 5.0))
    assert (slight == 1).all()  # the first level decides by any difference
    with pytest.raises(InputError, match="1 margins for 3 factors"):
        lexicographic_preference(FOUR, FOUR, margins=(1.0,))


def test_every_pair_of_a_group_is_compared_once() -> None:
    turns = Turns(
        {"group": [0, 0, 0, 1, 1, 2], "episode": [0, 1, 2, 0, 1, 0], "score": [1.0, 2.0, None, 5.0, 4.0, 9.0]}
    )
    found = pairs(turns, "score")
    assert found.features[:, 0].tolist() == [1, 2, 5, 4, 9]
    assert list(zip(found.winner, found.loser, strict=True)) == [(1, 0), (2, 3)]
    everything = pairs(turns, "score", over=())
    assert len(everything.winner) == 10
    assert (everything.features[everything.winner] > everything.features[everything.loser]).all()
    with pytest.raises(InputError, match="no factors"):
        pairs(turns)


def test_bradley_terry_finds_the_weights_that_made_the_preferences() -> None:
    rng = np.random.default_rng(0)
    x, true = rng.normal(size=(300, 2)), np.array([1.5, -0.5])
    first, second = rng.integers(300, size=(2, 20_000))
    won = rng.random(20_000) < 1 / (1 + np.exp(-(x[first] - x[second]) @ true))
    found = bradley_terry(DecidedPairs(x, np.where(won, first, second), np.where(won, second, first)), ridge=1e-6)
    np.testing.assert_allclose(found, true, atol=0.06)
    turns = Turns({"a": x[:, 0], "b": x[:, 1]})
    np.testing.assert_allclose(reward_of(found, "a", "b").evaluate(turns), x @ found)
    with pytest.raises(InputError, match="no pair was decided"):
        bradley_terry(DecidedPairs(x, first[:0], second[:0]))


def test_the_order_as_a_signal() -> None:
    turns = Turns({"group": [0] * 4, "episode": range(4)} | dict(zip(FACTORS, FOUR.T, strict=True)))
    found = lexicographic(*FACTORS, signs=SIGNS).evaluate(turns)
    np.testing.assert_allclose(found, [1 / 3, 1, -1 / 3, -1])
    with pytest.raises(ExpressionError, match="2 signs for 3 factors"):
        lexicographic(*FACTORS, signs=(1.0, 1.0))


def test_the_order_is_antisymmetric_inside_each_group() -> None:
    turns = sample_turns(np.random.default_rng(0), groups=(1, 4, 5))
    found = np.asarray(lexicographic("success", "cost").evaluate(turns))
    one = turns.frame.with_columns(found=found).group_by("group", "episode").first()
    sums = one.group_by("group").agg(pl.col("found").sum())["found"]
    np.testing.assert_allclose(sums.to_numpy(), 0, atol=1e-12)


def test_factors_that_differ_by_rounding_decide_nothing() -> None:
    found = lexicographic_preference(np.array([[0.1 + 0.2, 0.4]]), np.array([[0.3, 0.5]]), margins=(0.0, 0.0))
    assert found.tolist() == [-1]
