"""Rewards of solvers, evaluators and scorers."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.algebra.turns import Turns
from palaestra.rewards import comas, comas_reward


def table(taus):
    """One solution, and a critique and a score for each τ."""
    n = len(taus)
    roles = ["solver", *["evaluator", "scorer"] * n]
    return Turns(
        {
            "group": [0] * len(roles), "episode": [0] * len(roles), "round": [0] * len(roles), "role": roles,
            "pair": [None, *(k for k in range(n) for _ in (0, 1))],
            "tau": pl.Series([None, *(each for tau in taus for each in (None, tau))], dtype=pl.Float64),
            "parsed": [None, *(each for tau in taus for each in (None, tau is not None))],
        }
    )  # fmt: skip


def test_the_solver_has_the_mean_of_its_pairs_and_each_evaluator_the_rest_of_its_own():
    np.testing.assert_allclose(comas_reward().evaluate(table([3.0, 2.0, 1.0])), [0.5, 0, 0, 0.5, 0, 1, 0])


def test_a_score_that_cannot_be_read_costs_the_scorer_one_and_says_nothing_to_the_others():
    np.testing.assert_allclose(comas_reward().evaluate(table([3.0, None])), [1, 0, 0, np.nan, -1])


def test_a_scorer_with_a_stake_is_paid_what_it_says():
    np.testing.assert_allclose(comas_reward(stake=1.0).evaluate(table([3.0, 1.0])), [0.5, 0, 1, 1, 0])
    assert comas_reward(stake=1.0).evaluate(table([None]))[2] == -1


def test_each_policy_is_standardised_by_itself_and_drift_ahead_costs():
    rows = {
        "group": [0] * 3,
        "episode": [0] * 3,
        "turn": [0, 1, 2],
        "agent": ["a", "a", "b"],
        "policy": ["a", "a", "b"],
    }
    turns = Turns(rows | {"reward": [1.0, 0.0, 5.0], "logprobs": [[-1.0, -1.0], [-1.0], [-1.0]],
                          "reference_logprobs": [[-2.0, -1.0], [-1.0], [-9.0]]})  # fmt: skip
    plain = np.asarray(comas().evaluate(turns), float)
    assert plain[0] == pytest.approx(-plain[1])
    first, second, *_ = comas(beta=0.1).evaluate(turns).values
    assert first < second, "the first token has the drift of both before it, the second its own"
