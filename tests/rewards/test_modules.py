"""Rewards and periods of a pipeline's modules: what is refused and missing; the worked numbers are row [210]'s."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Rag
from palaestra.errors import ExpressionError, InputError
from palaestra.rewards import mmoa_rag_reward, outcome_reward, role_periods


def test_an_episode_without_an_answer_has_no_reward() -> None:
    rows = {"group": [0, 0], "episode": [0, 1], "agent": ["rewriter"] * 2, "action": ["a"] * 2, "found": [[1]] * 2}
    found = np.asarray(mmoa_rag_reward().evaluate(Turns(rows | {"answer_f1": [None, 0.5]})), float)
    np.testing.assert_array_equal(found, [np.nan, 0.5])


def test_a_verdict_that_is_missing_is_no_failure() -> None:
    rows = {"group": [0, 0], "episode": [0, 1], "agent": ["a"] * 2, "yes": [None, 0.2]}
    np.testing.assert_array_equal(np.asarray(outcome_reward().evaluate(Turns(rows)), float), [np.nan, 0.0])


def test_a_period_is_a_pair() -> None:
    for wrong in (("rewriter", -1), ("rewriter",), "rewriter"):
        with pytest.raises(ExpressionError, match="no pair such as"):
            role_periods("x", wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="questions=0"):
        Rag(questions=0)
