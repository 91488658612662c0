"""[194]: emotion from changes, and its two rewards."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.rewards.judged.emotion import emotion, rlver_reward

TURNS = Turns(
    {
        "episode": [0, 0, 0, 1, 1, 1, 1, 1],
        "turn": [0, 1, 2, 0, 1, 2, 3, 4],
        "agent": ["a"] * 8,
        "delta": [7.0, -30, 4, -10, -10, -10, -10, -10],
    }
)


def test_emotion_is_clipped_twice() -> None:
    np.testing.assert_array_equal(np.asarray(emotion().evaluate(TURNS)), [47, 37, 41, 30, 20, 10, 0, 0])


def test_the_reward_stands_on_the_last_turn() -> None:
    np.testing.assert_allclose(np.asarray(rlver_reward().evaluate(TURNS)), [0, 0, 0.41, 0, 0, 0, 0, 0])


def test_turn_by_turn_it_telescopes() -> None:
    values = np.asarray(parse("rlver_reward(turnwise=True)").evaluate(TURNS))
    np.testing.assert_allclose(values, [0.07, -0.1, 0.04, -0.1, -0.1, -0.1, -0.1, 0], atol=1e-12)
    assert values[:3].sum() == pytest.approx(0.41 - 0.4)
