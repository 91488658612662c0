"""Rewards that need nothing but the table."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.algebra.turns import Turns
from palaestra.errors import MissingColumnError
from palaestra.rewards import penalty_invalid, success_reward

NAN = float("nan")
TURNS = Turns(
    {
        "group": [0] * 7,
        "episode": [0, 0, 0, 0, 1, 1, 1],
        "turn": [0, 1, 2, 3, 0, 0, 1],
        "agent": ["a", "b", "a", "b", "a", "b", "a"],
        "success": [True, False, True, False, None, None, None],
        "valid": [True, False, True, None, True, True, False],
    }
)


def test_success_is_paid_once_on_each_agents_last_turn() -> None:
    found = np.asarray(success_reward().evaluate(TURNS))
    np.testing.assert_array_equal(found, [0, 0, 1, 0, NAN, NAN, NAN])


def test_success_may_be_any_score() -> None:
    turns = TURNS.with_column(graded=[0.5, 0.25] * 3 + [0.5])
    found = np.asarray(success_reward("graded").evaluate(turns))
    np.testing.assert_array_equal(found, [0, 0, 0.5, 0.25, 0, 0.25, 0.5])


def test_it_does_not_matter_in_which_order_the_rows_come() -> None:
    order = np.random.default_rng(0).permutation(len(TURNS))
    found = np.asarray(success_reward().evaluate(Turns(TURNS.frame[order])))
    np.testing.assert_array_equal(found, np.asarray(success_reward().evaluate(TURNS))[order])


def test_invalid_actions_cost_and_unknown_ones_are_unknown() -> None:
    found = np.asarray(penalty_invalid(size=0.25).evaluate(TURNS))
    np.testing.assert_array_equal(found, [0, -0.25, 0, NAN, 0, 0, -0.25])
    total = np.asarray((success_reward() + penalty_invalid()).evaluate(TURNS))
    np.testing.assert_allclose(total, [0, -0.1, 1, NAN, NAN, NAN, NAN])


def test_what_they_need_is_named() -> None:
    with pytest.raises(MissingColumnError, match=r"success_reward\(\): column 'success' is missing"):
        success_reward().evaluate(Turns(TURNS.frame.drop("success")))
    with pytest.raises(MissingColumnError, match=r"penalty_invalid\(\): column 'valid' is missing"):
        penalty_invalid().evaluate(Turns(TURNS.frame.drop("valid")))
