"""Which tasks come next."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.stages.tasks import FailureReplay, StagedCurriculum

DIFFICULTY = {"a": 1.0, "b": 2.0, "c": 9.0}


def test_stages_by_success() -> None:
    stages = StagedCurriculum(DIFFICULTY, edges=(1, 5), at_success=0.8)
    assert stages.tasks(1000) == stages.newest() == ["a"]
    stages.report(0.79)
    assert stages.tasks() == ["a"]
    for newest, every in ((["b"], ["a", "b"]), (["c"], ["a", "b", "c"]), (["c"], ["a", "b", "c"])):
        stages.report(0.8)
        assert (stages.newest(), stages.tasks()) == (newest, every)


@pytest.mark.parametrize(
    "options", [{}, {"at_step": (1, 2), "at_success": 0.5}, {"at_step": (1,)}, {"at_step": (2, 1)}]
)
def test_stages_that_cannot_be(options: dict) -> None:
    with pytest.raises(InputError, match="StagedCurriculum"):
        StagedCurriculum(DIFFICULTY, edges=(1, 5), **options)


def test_failed_tasks_come_back_until_they_are_solved() -> None:
    replay: FailureReplay[str] = FailureReplay(capacity=2, every=2, fraction=0.5)
    replay.add({"a": 0.0, "b": 0.0, "c": 0.0, "d": 1.0})
    rng = np.random.default_rng(0)
    assert replay.choose(list("wxyz"), iteration=1, rng=rng) == list("wxyz")
    chosen = replay.choose(list("wxyz"), iteration=2, rng=rng)
    assert sorted(chosen[:2]) == ["b", "c"]  # the newest two
    assert chosen[2:] == ["y", "z"]
    replay.add({"b": 0.5})
    assert replay.choose(list("wxyz"), iteration=4, rng=rng) == ["c", "x", "y", "z"]


def test_failed_tasks_of_a_table() -> None:
    turns = Turns(
        {
            "group": [0, 0, 1, 1],
            "episode": [0, 1, 0, 1],
            "turn": [0] * 4,
            "agent": ["x"] * 4,
            "task": ["a", "a", "b", "b"],
            "reward": [0.0, 1.0, 0.0, 0.0],
        }
    )
    replay: FailureReplay[str] = FailureReplay()
    replay.add(turns)
    assert list(replay.failed) == ["b"]
