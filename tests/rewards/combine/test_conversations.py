"""Rewards of conversations that are ways through a tree."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.algebra.turns import Turns
from palaestra.rewards import optima_reward

ROWS = {
    "group": [0, 0, 0, 1], "episode": [0, 0, 1, 0], "node": ["0.1", "0.1.1", "0.1", "0.1"],
    "parent": ["0", "0.1", "0", "0"], "leaf": [False, True, True, True], "words": [20, 60, 120, 10],
    "text_loss": [2.5, 1.0, 2.0, 4.0], "reward": [0.0, 0.8, 0.5, 1.0],
}  # fmt: skip


def values(**options: float) -> np.ndarray:
    return np.asarray(optima_reward(**options).evaluate(Turns(ROWS)), float)


def test_score_less_its_share_of_the_groups_most_words_plus_readability_of_the_worst_utterance():
    np.testing.assert_allclose(values(), [0, 0.8 - 0.3 + 0.4, 0.5 - 0.6 + 0.5, 1 - 0.6 + 0.25])
    assert values(cost=0)[1] == pytest.approx(1.2)
    assert values(readable=0)[1] == pytest.approx(0.5)
