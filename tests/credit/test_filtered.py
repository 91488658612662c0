"""Filters of turns that are cloned, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.algebra.turns import Turns
from palaestra.credit import short_success, step_filter, vsc_rl
from palaestra.errors import ExpressionError

ROWS = {"episode": [0] * 4, "agent": ["a"] * 4, "turn": [0, 1, 2, 3], "value": [0.3, 0.35, 0.2, 0.6]}


def test_both_forms_of_the_step_advantage() -> None:
    won, lost = (Turns(ROWS | {"reward": [0.0, 0, 0, end]}) for end in (1.0, 0.0))
    np.testing.assert_allclose(step_filter().evaluate(won), [0.125, 0.05, 0.85, 1.0])
    np.testing.assert_allclose(step_filter().evaluate(lost), [0, 0, 0.35, 0], atol=1e-12)
    np.testing.assert_allclose(step_filter(lam=0.5).evaluate(won), [0.16875, 0.1375, 0.7, 1.0])
    np.testing.assert_allclose(step_filter(gamma=0.0, margin=0.0).evaluate(won), [0.05, 0, 0.4, 1.0], atol=1e-12)


def test_a_segment_is_looked_at_by_itself() -> None:
    rows = ROWS | {"segment": [0, 0, 1, 1], "subgoal_done": [False, True, False, False], "first_value": [0.3] * 4}
    assert vsc_rl(top=1.0).evaluate(Turns(rows)).tolist() == [1, 1, 0, 0]
    assert vsc_rl(top=1.0, passed=False).evaluate(Turns(rows)).tolist() == [1, 1, 1, 0]


def test_lengths_of_successes_by_task() -> None:
    lengths, episode = [3, 4, 5, 6, 10], [e for e, n in enumerate([3, 4, 5, 6, 10]) for _ in range(n)]
    rows = {"episode": episode, "agent": ["a"] * sum(lengths), "task": ["t"] * sum(lengths), "verdict": [True] * 28}
    found = short_success().evaluate(Turns(rows))
    assert found.tolist() == [1.0] * 3 + [0.0] * 25
    assert short_success(q=1.0).evaluate(Turns(rows)).all()
    none = Turns(rows | {"verdict": [None] * 28})
    assert not short_success().evaluate(Turns(none.frame.cast({"verdict": bool}))).any()


def test_what_is_refused() -> None:
    with pytest.raises(ExpressionError, match="top=0"):
        vsc_rl(top=0)
    with pytest.raises(ExpressionError, match="lam=2"):
        step_filter(lam=2)
