"""`Answers`: a task, one answer, right or wrong. The smallest world in which groups, baselines and replay differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.base import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.base import Chosen, NativeEnv
from palaestra.errors import InputError


@dataclass
class _State:
    task: int
    wording: int = 0
    over: bool = False


@ENVS.register("native/answers")
class Answers(NativeEnv):
    """`tasks` tasks with `answers` answers each, of which `right` are right, the same in every process.

    Which are right is drawn from `draw`. Reward 1 for a right one, else 0. With `right` as a list, task k has
    `right[k % len(right)]` right ones, so that tasks differ in difficulty. facts: correct; answer, its number;
    difficulty, the share of wrong answers; wording, in which of its `wordings` ways the task was put, all of a group in
    one: two of them are the views of `co_reward("answer", pair="task", view="wording")`.
    """

    agents: tuple[str, ...] = ("answerer",)
    facts = {"correct": bool, "answer": int, "difficulty": float, "wording": int}

    def __init__(
        self, *, tasks: int = 8, answers: int = 8, right: int | list[int] = 1, wordings: int = 1, draw: int = 0
    ) -> None:
        counts = [right] if isinstance(right, int) else list(right)
        if wordings < 1:
            raise InputError(f"Answers: wordings={wordings} must be at least 1")
        if tasks < 1 or answers < 2 or not counts or not all(1 <= each <= answers for each in counts):
            raise InputError(f"Answers: tasks={tasks} >= 1, answers={answers} >= 2 and 1 <= right={right} <= answers")
        self.tasks, self.answers, self.wordings = tasks, answers, wordings
        rng = np.random.default_rng(draw)
        self.right = np.zeros((tasks, answers), bool)
        for task in range(tasks):
            self.right[task, rng.permutation(answers)[: counts[task % len(counts)]]] = True
        self.choices = tuple(f"answer {number}" for number in range(answers))

    def begin(self) -> tuple[str, _State]:
        """Draw a task."""
        task = int(self.rng.integers(self.tasks))
        wording = int(self.rng.integers(self.wordings)) if self.wordings > 1 else 0
        return f"task {task}", _State(task, wording)

    def look(self) -> dict[str, Observation]:
        """The number of the task."""
        if self.state.over:
            return {}
        words = f", wording {self.state.wording}" if self.wordings > 1 else ""
        return {"answerer": Observation(f"task {self.state.task}{words}", choices=self.choices)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Look the answer up; what is none is wrong."""
        answer, self.state.over = chosen["answerer"], True
        known = isinstance(answer, int)
        correct = bool(known and self.right[self.state.task, answer])
        info = {
            "correct": correct,
            "answer": answer if known else -1,
            "difficulty": 1 - float(self.right[self.state.task].mean()),
            "wording": self.state.wording,
            "success": correct,
        }
        return {"answerer": float(correct)}, info
