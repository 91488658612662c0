"""What is written down about an iteration."""

from __future__ import annotations

import pytest

from palaestra.algebra.turns import Turns
from palaestra.learning.measure import measure


def test_an_episode_counts_once_however_many_take_part() -> None:
    """Three of four take part in a failure worth 0, one alone in a success worth 1: half of the episodes succeed."""
    turns = Turns({
        "group": [0, 0, 0, 0], "episode": [0, 0, 0, 1], "turn": [0, 1, 2, 0], "agent": ["a", "b", "c", "a"],
        "policy": ["p"] * 4, "reward": [0.0, 0.0, 0.0, 1.0], "success": [False, False, False, True],
        "error": [None] * 4, "valid": [True] * 4, "action": ["x"] * 4,
    })  # fmt: skip
    line = measure(turns, 2, {"p": {}}, ["p"])
    assert line["success"] == pytest.approx(0.5)
    assert line["reward"] == pytest.approx(0.5)
    assert line["episodes"] == 2
