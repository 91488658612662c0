"""Preferences: worked numbers of [148], and its signal against the matrix of all pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.credit import (
    average_mixture,
    minimax_winner,
    pairwise,
    preference_exploitability,
    self_play_preference,
    win_rate,
    win_rates,
)
from palaestra.errors import ExpressionError, InputError, MissingColumnError

CYCLE = ((0.5, 0.9, 0.2), (0.1, 0.5, 0.8), (0.8, 0.2, 0.5))


def group(items: list[float]) -> Turns:
    rows = len(items)
    return Turns({"group": [0] * rows, "episode": list(range(rows)), "agent": ["a"] * rows, "item": items})


def test_worked_win_rates() -> None:
    batch = [0, 0, 1, 2]
    expected = [0.5333, 0.5333, 0.3333, 0.6]
    np.testing.assert_allclose(win_rates(np.array(CYCLE)[np.ix_(batch, batch)]), expected, atol=1e-4)
    signal = win_rate("item", preference=CYCLE)
    np.testing.assert_allclose(signal.evaluate(group(batch)), expected, atol=1e-4)
    assert parse(str(signal), columns=["item"]).text == signal.text
    np.testing.assert_allclose(np.mean(CYCLE, axis=1), [0.5333, 0.4667, 0.5], atol=1e-4)  # Borda prefers the first


def test_the_minimax_winner_of_a_cycle() -> None:
    np.testing.assert_allclose(minimax_winner(np.array(CYCLE)), [0.3, 0.3, 0.4], atol=1e-9)
    assert preference_exploitability(minimax_winner(np.array(CYCLE)), np.array(CYCLE)) == pytest.approx(0, abs=1e-9)
    assert preference_exploitability(np.array([1.0, 0, 0]), np.array(CYCLE)) == pytest.approx(0.3)
    for chances in ([[0, 0], [0, 0]], [[0.5, 0.9], [0.9, 0.5]], [[0.5, 1.5], [-0.5, 0.5]]):
        with pytest.raises(InputError, match=r"P\[i, j\] \+ P\[j, i\] must be 1"):
            minimax_winner(np.array(chances))
    for matrix in (np.ones((2, 3)), np.full((2, 2), np.nan)):
        with pytest.raises(InputError, match="must be square and finite"):
            minimax_winner(matrix)


@given(st.lists(st.integers(0, 3).map(float), min_size=1, max_size=8))
def test_without_a_matrix_larger_numbers_win(items: list[float]) -> None:
    expected = win_rates(pairwise(items, lambda one, other: (np.sign(one - other) + 1) / 2))
    np.testing.assert_allclose(win_rate("item").evaluate(group(items)), expected)
    advantage = np.asarray(self_play_preference("item").evaluate(group(items)))
    np.testing.assert_allclose(advantage, expected - expected.mean() if len(items) > 1 else [0], atol=1e-12)


def test_a_queue_of_opponents_counts_them_all() -> None:
    matrix = pairwise([1.0, 2.0], lambda one, other: float(one > other), opponents=[0.0, 1.5])
    np.testing.assert_array_equal(win_rates(matrix, exclude_self=False), [0.5, 1])


def test_a_matrix_must_fit() -> None:
    with pytest.raises(ExpressionError, match="not a square matrix of chances"):
        win_rate("item", preference=((0.5, 2.0), (0.5, 0.5)))
    with pytest.raises(InputError, match="not a row of the preference, 0 to 2"):
        win_rate("item", preference=CYCLE).evaluate(group([0, 3]))


def test_the_average_mixture_counts_all_iterations() -> None:
    turns = Turns({"iteration": [1, 1, 2, 2], "answer": [0, 2, 2, None]})
    np.testing.assert_allclose(average_mixture(turns, "answer", 4), [1 / 3, 0, 2 / 3, 0])
    with pytest.raises(MissingColumnError, match="average_mixture"):
        average_mixture(turns, "item", 3)
    for of_numbers in ([0.0, 1.0, 1.0, None], [False, True, True, None]):
        np.testing.assert_allclose(average_mixture(Turns({"x": of_numbers}), "x", 3), [1 / 3, 2 / 3, 0])
    for wrong in ([0, 1, 5], [-1, 0, 1], [0.5, 1.0, 0.0]):
        with pytest.raises(InputError, match="an item is not a whole number from 0 to 2"):
            average_mixture(Turns({"x": wrong}), "x", 3)
    with pytest.raises(ExpressionError, match="x"):
        average_mixture(Turns({"x": ["a", "b"]}), "x", 3)
