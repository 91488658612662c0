"""Predicted difficulty: from the past only, by task, found again after a stop."""

from __future__ import annotations

from typing import Any

import pytest

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.stages.difficulty import difficulty

NOTHING: Any = None


def table(success: list[bool | None], tasks: list[str]) -> Turns:
    number = list(range(len(success)))
    keys = {"group": [0] * len(number), "episode": number, "turn": [0] * len(number)}
    return Turns(keys | {"agent": ["a"] * len(number), "task": tasks, "success": success})


def test_only_the_past_counts() -> None:
    stage = difficulty(last=3)
    first = stage(table([True, False, None, True], ["easy", "hard", "hard", "easy"]), NOTHING)
    assert first["difficulty"].to_list() == [0.5] * 4
    second = stage(table([True, True], ["easy", "hard"]), NOTHING)
    assert second["difficulty"].to_list() == pytest.approx([1 - 2.5 / 3, 0.75]), "unscored episodes do not count"
    state = stage.state_dict()
    again = difficulty(last=3)
    again.load_state_dict(state)
    later = table([True, True, True], ["easy", "hard", "new"])
    assert again(later, NOTHING)["difficulty"].to_list() == stage(later, NOTHING)["difficulty"].to_list()
    assert len(stage.state_dict()["past"]["easy"]) == 3


def test_tasks_that_were_not_met_for_long_are_forgotten() -> None:
    stage = difficulty(tasks=1)
    stage(table([True, False], ["one", "two"]), NOTHING)
    assert list(stage.state_dict()["past"]) == ["two"]
    with pytest.raises(InputError, match="tasks=0"):
        difficulty(tasks=0)
