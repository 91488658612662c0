"""Tests of scores by nearness to a goal."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.agents import Team
from palaestra.agents.scripted import random_legal
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import GoalGrid
from palaestra.errors import InputError
from palaestra.learning.stages import Context
from palaestra.learning.stages.nearness import fitted, nearness
from palaestra.play.executors import Local


def context() -> Context:
    return Context(np.random.default_rng(0), 1, GoalGrid, Team(walker=random_legal()), Local())


def path(order: list[int] | None = None) -> Turns:
    """Two episodes of three turns, of which the first one ends at its goal; rows in any order."""
    frame = pl.DataFrame(
        {
            "group": [0, 0, 0, 1, 1, 1], "episode": [0] * 6, "turn": [0, 1, 2] * 2, "agent": ["walker"] * 6,
            "state": pl.Series([1, 2, 3, 4, 5, 6], dtype=pl.UInt64), "action_ids": [[0]] * 6,
            "achieved": ["a", "b", "g", "a", "b", "c"], "goal": ["g"] * 6,
        }
    )  # fmt: skip
    return Turns(frame if order is None else frame[order])


def test_scores_do_not_depend_on_the_order_of_rows() -> None:
    found = nearness(gamma=0.95)(path(), told := context()).frame
    assert found["nearness"].to_list()[:3] == pytest.approx([32.2, 36.0, 40.0], abs=1e-3)
    assert found["nearness"].to_list()[3:5] == pytest.approx([-40.0, -40.0], abs=1e-3), "never there"
    assert found["nearness"].to_list()[5] is None, "nothing is known of what follows"
    assert found["nearness_value"].to_list()[5] is None
    assert told.metrics["entering"] == 1
    assert told.metrics["unknown"] == 1
    order = [4, 1, 5, 0, 2, 3]
    assert nearness(gamma=0.95)(path(order), context()).frame["nearness"].equals(found["nearness"][order])


@given(st.integers(0, 2**31), st.floats(0.5, 0.95), st.floats(0.55, 0.95))
def test_a_fit_is_a_fixed_point_within_its_bounds(seed: int, gamma: float, expectile: float) -> None:
    """No score leaves ±2 / (1 - γ), and no value the range of its state's scores."""
    rng = np.random.default_rng(seed)
    here, action = rng.integers(0, 6, 60), rng.integers(0, 2, 60)
    there, enters = rng.integers(-1, 6, 60), rng.random(60) < 0.2
    there = np.where(np.isin(there, here), there, -1)
    score, value = fitted(here, action, there, enters, gamma=gamma, expectile=expectile)
    most = 2 / (1 - gamma)
    known = np.isfinite(score)
    assert np.all(np.abs(score[known]) <= most + 1e-9)
    for state in np.unique(here[known]):
        scores = score[(here == state) & known]
        assert scores.min() - 1e-9 <= value[here == state][0] <= scores.max() + 1e-9


def test_numbers_out_of_range_are_named() -> None:
    with pytest.raises(InputError, match=r"gamma=1\.0"):
        nearness(gamma=1.0)
    with pytest.raises(InputError, match="expectile=0"):
        nearness(expectile=0)


def test_turns_that_enter_and_turns_that_go_on_weigh_as_their_means() -> None:
    """State 1 enters the goal, which is worth 2 / .05; state 0 enters it in one of its two turns.

    Of two turns that enter and two that go on, its own have weights 1/2 and 1/2 · 1/2: (40 / 2 + 36 / 4) / (3 / 4).
    """
    here, there = np.array([0, 0, 1, 2]), np.array([-1, 1, -1, 1])
    enters = np.array([True, False, True, False])
    score, value = fitted(here, np.zeros(4, int), there, enters, gamma=0.95, expectile=0.5)
    assert score == pytest.approx([29 / 0.75] * 2 + [40.0, 36.0], abs=2e-3)
    assert value == pytest.approx(score)
