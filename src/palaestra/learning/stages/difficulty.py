"""Predicted difficulty of a task, from how its past episodes went."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.returns import episode_score
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.stages.stage import Context, Stage, stage


@stage
class difficulty(Stage):
    """Stage: column `difficulty`, 1 - mean score of the task's earlier episodes and one pseudo-episode of score 1/2.

    For GUI-G1 [172].
    From earlier iterations only, so that no episode weighs itself; a task that is new has 1/2. last: episodes kept of
    each task. tasks: tasks kept, those met last. score: text of the signal that says how an episode went, in [0, 1].

    Its credit is `gui_g1()`. GUI-G1 itself takes the size of the target, which an env may tell as `difficulty`.

    Raises:
        InputError: last or tasks is less than 1.
    """

    adds = {"difficulty": "share of the task's past episodes that failed"}

    def __init__(self, *, last: int = 64, tasks: int = 10_000, score: str = "success") -> None:
        if last < 1 or tasks < 1:
            raise InputError(f"difficulty: last={last} and tasks={tasks} must be at least 1")
        self.last, self.tasks, self.score = last, tasks, parse(score)
        self.needs = {"group", "episode", "task"} | self.score.needs()
        self._past: OrderedDict[str, list[float]] = OrderedDict()

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with `difficulty`, from earlier iterations only."""
        names = turns["task"].to_list()
        known = {task: self._of(task) for task in set(names)}
        marked = turns.with_column(difficulty=np.array([known[task] for task in names], float))
        scored = turns.with_column(_score=episode_score(self.score)).frame.filter(pl.col("_score").is_not_nan())
        episodes = scored.drop_nulls("task").unique(["group", "episode"], keep="first", maintain_order=True)
        for task, scores in episodes.group_by("task", maintain_order=True).agg("_score").iter_rows():
            self._past[task] = [*self._past.pop(task, []), *scores][-self.last :]
        while len(self._past) > self.tasks:
            self._past.popitem(last=False)
        return marked

    def _of(self, task: str) -> float:
        past = self._past.get(task, [])
        return 1.0 - (sum(past) + 0.5) / (len(past) + 1)

    def state_dict(self) -> dict[str, Any]:
        """State: scores by task, those met last at the end."""
        return {"past": dict(self._past)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self._past = OrderedDict((str(task), list(map(float, scores))) for task, scores in state["past"].items())
