"""Old successes beside new turns, if the policy of now finds them likely, but not too likely."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import pytest

from palaestra.agents import TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Talk
from palaestra.learning.stages import Context
from palaestra.learning.stages import success_replay as module
from palaestra.learning.stages.success_replay import success_replay
from palaestra.play.executors import Local


def table(tasks: dict[str, float], group: int) -> Turns:
    """One turn a task, paid as said."""
    count = len(tasks)
    return Turns(
        pl.DataFrame(
            {
                "group": range(group, group + count), "episode": [0] * count, "turn": [0] * count,
                "agent": ["clerk"] * count, "task": list(tasks), "policy": ["p"] * count, "observation": ["o"] * count,
                "action_ids": [[1]] * count, "reward": list(tasks.values()),
            }
        )
    )  # fmt: skip


def context() -> Context:
    return Context(np.random.default_rng(0), 1, Talk, Team(clerk=TabularPolicy(6)), Local())


@pytest.fixture
def likely(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """How likely the policy of now finds the old turn of each task."""
    chances: dict[str, float] = {}

    def rescored(frame: pl.DataFrame, context: Context, new: str) -> pl.DataFrame:
        logs = [[math.log(chances[task])] * 2 for task in frame["task"]]
        return frame.with_columns(logprobs=pl.Series(logs, dtype=pl.List(pl.Float64)))

    monkeypatch.setattr(module, "rescored", rescored)
    return chances


def added(stage: Any, told: Context, count: int = 4) -> pl.DataFrame:
    found = stage(table({f"new {number}": 0.0 for number in range(count)}, 20), told).frame
    assert found.filter(~pl.col("replayed")).height == count
    return found.filter("replayed")


def test_only_what_is_likely_and_not_too_likely_comes_back(likely: dict[str, float]) -> None:
    likely |= {"rare": 0.5, "fine": 0.6, "edge": 0.95, "trivial": 0.96}
    stage = success_replay(low=0.5, high=0.95 + 1e-12)
    assert not stage(table(dict.fromkeys(likely, 1.0) | {"failed": 0.0}, 0), context()).frame["replayed"].any()
    found = added(stage, told := context())
    assert set(found["task"]) == {"fine", "edge"}
    assert sorted(found["group"]) == [24, 25]
    assert told.metrics == {"old": 4.0, "trivial": 1.0, "foreign": 1.0, "replayed": 2.0}


@pytest.mark.parametrize(("most", "rows"), [(0.5, 2), (0.74, 2), (1.0, 4), (2.0, 6), (0.0, 0)])
def test_no_more_than_so_many_times_the_new_rows(likely: dict[str, float], most: float, rows: int) -> None:
    likely |= {f"old {number}": 0.8 for number in range(6)}
    stage = success_replay(most=most)
    stage(table(dict.fromkeys(likely, 1.0), 0), context())
    assert len(added(stage, context())) == rows


def test_the_newest_success_of_the_newest_tasks_is_kept(likely: dict[str, float]) -> None:
    likely |= dict.fromkeys("abc", 0.8)
    stage = success_replay(tasks=2)
    stage(table({"a": 1.0, "b": 1.0}, 0), context())
    stage(table({"c": 1.0, "a": 0.5}, 5), context())
    assert stage.past is not None
    assert stage.past.select("task", "group").sort("task").rows() == [("a", 6), ("c", 5)]


def test_of_two_successes_at_one_task_the_first_is_kept(likely: dict[str, float]) -> None:
    likely["a"] = 0.8
    stage = success_replay()
    both = pl.concat([table({"a": 0.0}, 0).frame, table({"a": 1.0}, 1).frame, table({"a": 1.0}, 2).frame])
    stage(Turns(both), context())
    assert stage.past is not None
    assert stage.past["group"].to_list() == [1]
