"""The reward of what was left out: its gates, and that episodes are told apart."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.algebra.turns import Turns
from palaestra.errors import ExpressionError
from palaestra.rewards import omission_reward

ROWS = {
    "episode": [0, 0, 1, 1], "agent": ["a"] * 4, "reward": [0.0, 1.0, 0.0, 0.0],
    "saved_observation": [300.0, 120.0, 300.0, None], "saved_thought": [0.0, 160.0, 100.0, 0.0],
    "context": [1500, 1600, 1000, 0],
}  # fmt: skip


def values(**options) -> np.ndarray:
    return np.asarray(omission_reward(**options).evaluate(Turns(ROWS)), float)


def test_savings_count_where_the_episode_succeeded():
    np.testing.assert_allclose(values(), [0.2 * 0.2, 0.8 + 0.2 * 280 / 1600, 0, 0])


def test_other_gates_and_weights():
    np.testing.assert_allclose(values(gate="step"), [0, 0.8 + 0.2 * 280 / 1600, 0, 0])
    np.testing.assert_allclose(values(gate=None), [0.04, 0.8 + 0.2 * 280 / 1600, 0.08, 0])
    np.testing.assert_allclose(values(weight=0), ROWS["reward"])
    with pytest.raises(ExpressionError, match="weight"):
        omission_reward(weight=1.5)
    with pytest.raises(ExpressionError, match="gate"):
        omission_reward(gate="turn")  # type: ignore[arg-type]


def test_the_score_of_another_agent_opens_no_gate():
    """Both left out a fifth of what they read; the one that was paid earns .2 · .2 more, the other nothing."""
    rows = {"episode": [0, 0], "turn": [0, 1], "agent": ["a", "b"], "reward": [1.0, 0.0], "context": [500, 1000]}
    turns = Turns(rows | {"saved_observation": [100.0, 200.0], "saved_thought": [0.0, 0.0]})
    np.testing.assert_allclose(np.asarray(omission_reward().evaluate(turns), float), [0.84, 0.0])
    np.testing.assert_allclose(np.asarray(omission_reward(over="episode").evaluate(turns), float), [0.84, 0.04])
