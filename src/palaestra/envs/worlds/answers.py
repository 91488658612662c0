"""`Answers`: a task, one answer, right or wrong. The smallest world in which groups, baselines and replay differ."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError


@dataclass
class _AnswersState:
    task: int
    wording: int = 0
    over: bool = False


@ENVS.register("native/answers")
class Answers(NativeEnv):
    """Quiz env of one turn: `answerer` sees only a task's number and picks one of `answers`; a right one pays 1.

    `tasks` tasks with `answers` answers each, of which `right` are right, the same in every process.

    Which are right is drawn from `draw`. Reward 1 for a right one, else 0. With `right` as a list, task k has
    `right[k % len(right)]` right ones, so that tasks differ in difficulty. facts: correct; answer, its number;
    difficulty, the share of wrong answers; wording, in which of its `wordings` ways the task was put, all of a group in
    one: two of them are the views of `co_reward("answer", pair="task", view="wording")`. features: show arrays, with a
    number for the task and one for the task in this wording, so that networks share what they learn between wordings.
    """

    agents: tuple[str, ...] = ("answerer",)
    facts = {"correct": bool, "answer": int, "difficulty": float, "wording": int}

    def __init__(
        self,
        *,
        tasks: int = 8,
        answers: int = 8,
        right: int | list[int] = 1,
        wordings: int = 1,
        features: bool = False,
        draw: int = 0,
    ) -> None:
        counts = [right] if isinstance(right, int) else list(right)
        if wordings < 1:
            raise InputError(f"Answers: wordings={wordings} must be at least 1")
        if tasks < 1 or answers < 2 or not counts or not all(1 <= each <= answers for each in counts):
            raise InputError(f"Answers: tasks={tasks} >= 1, answers={answers} >= 2 and 1 <= right={right} <= answers")
        self.tasks, self.answers, self.wordings, self.features = tasks, answers, wordings, features
        rng = np.random.default_rng(draw)
        self.right = np.zeros((tasks, answers), bool)
        for task in range(tasks):
            self.right[task, rng.permutation(answers)[: counts[task % len(counts)]]] = True
        self.choices = tuple(f"answer {number}" for number in range(answers))

    def begin(self) -> tuple[str, _AnswersState]:
        """Start an episode with a drawn task."""
        task = int(self.rng.integers(self.tasks))
        wording = int(self.rng.integers(self.wordings)) if self.wordings > 1 else 0
        return f"task {task}", _AnswersState(task, wording)

    def look(self) -> dict[str, Observation]:
        """Observation of the agent: the number of the task, and its wording where there are several."""
        if self.state.over:
            return {}
        task, wording = self.state.task, self.state.wording
        words = f", wording {wording}" if self.wordings > 1 else ""
        seen = None
        if self.features:
            seen = np.zeros(self.tasks * (1 + self.wordings), np.float32)
            seen[[task, self.tasks + task * self.wordings + wording]] = 1.0
        return {"answerer": Observation(f"task {task}{words}", choices=self.choices, array=seen)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Score the answer; an invalid one is wrong."""
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


def suggestible(
    *, tasks: int = 8, answers: int = 8, wordings: int = 2, draw: int = 0, right: float = 0.35, suggested: float = 0.45
) -> Callable[[Any], str]:
    """Makes a policy function (request -> action): right with chance `right`, misled with `suggested`, else any answer.

    For `native/answers`.

    With a chance of `right` the right one, with one of `suggested` the wrong one that this wording of the task
    suggests, else any.
    """
    truth = Answers(tasks=tasks, answers=answers, draw=draw).right.argmax(axis=1)
    wrong = (truth[:, None] + np.random.default_rng(draw).integers(1, answers, (tasks, wordings))) % answers

    def play(request: Any) -> str:
        task, wording = map(int, re.findall(r"\d+", request.observation.text))
        luck = request.rng.random()
        if luck < right + suggested:
            return f"answer {truth[task] if luck < right else wrong[task, wording]}"
        return f"answer {request.rng.integers(answers)}"

    return play


def corrector(
    *,
    keeps: float = 0.9,
    flags: float = 0.8,
    corrects: float = 0.6,
    spoils: float = 0.3,
    seed: int = 0,
    tasks: int = 8,
    answers: int = 8,
    draw: int = 0,
) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Makes a simulated judge of `native/answers`: function from a frame of answers to one of verdicts and corrections.

    It is made for `corrected_actions`.

    It keeps right answers and flags wrong ones with these chances. What it flags it corrects rightly with chance
    `corrects`, or `spoils` if it was right, else it names a wrong answer.
    """
    truth = Answers(tasks=tasks, answers=answers, draw=draw).right.argmax(axis=1)

    def judge(rows: pl.DataFrame) -> pl.DataFrame:
        right, task = _checked(rows, truth)
        rng = _stream(rows, seed, 0)
        kept, mended = rng.random(len(rows)), rng.random(len(rows))
        verdict = np.where(right, kept < keeps, kept >= flags)
        wrong = (truth[task] + rng.integers(1, answers, len(rows))) % answers
        number = np.where(mended < np.where(right, spoils, corrects), truth[task], wrong)
        put = pl.when(~pl.col("verdict")).then("number")
        table = pl.DataFrame({"verdict": verdict, "number": number})
        return table.select("verdict", corrected_action=pl.format("answer {}", put), corrected_id=put)

    return judge


class Arbiter:
    """Simulated judge of `native/answers`: scores 1 if it prefers an answer to the reference, else 0, with errors.

    It prefers the right one with chance `right`, and either of two that are both right or both wrong equally often.
    """

    name = "arbiter"

    def __init__(self, right: float = 0.85, *, seed: int = 0, tasks: int = 8, answers: int = 8, draw: int = 0) -> None:
        self.right, self.seed = right, seed
        self.truth = Answers(tasks=tasks, answers=answers, draw=draw).right.argmax(axis=1)

    def score(
        self, rows: pl.DataFrame, *, reference: pl.DataFrame | None = None, condition: pl.DataFrame | None = None
    ) -> pl.Series:
        """1 where it prefers the row's answer to the reference, else 0."""
        if reference is None:
            raise InputError("Arbiter: compares two answers; give a reference")
        mine, theirs = (_checked(table, self.truth)[0] for table in (rows, reference))
        chance = np.where(mine == theirs, 0.5, np.where(mine, self.right, 1 - self.right))
        return pl.Series("score", _stream(rows, self.seed, 1).random(len(rows)) < chance, pl.Boolean).cast(pl.Float64)


def _checked(rows: pl.DataFrame, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whether each answer is right, and the number of its task."""
    task, answer = (
        rows[name].cast(pl.String).str.extract(r"^\w+ (\d+)").cast(pl.Int64).fill_null(-1).to_numpy()
        for name in ("task", "action")
    )
    return answer == truth[task], task


def _stream(rows: pl.DataFrame, seed: int, who: int) -> np.random.Generator:
    iteration = int(rows["iteration"].max() or 0) if "iteration" in rows.columns and len(rows) else 0  # type: ignore[arg-type]
    return np.random.default_rng([seed, who, iteration])
