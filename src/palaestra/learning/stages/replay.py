"""Stages that add past episodes, or mark rows that are alike: R³'s replay [83], GiGPO's anchors by similarity [62]."""

from __future__ import annotations

import operator
from typing import Any

import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.credit.anchors import similar
from palaestra.credit.repair import inject, remember
from palaestra.errors import InputError
from palaestra.learning.stages.stage import Context, Stage, packed, stage, unpacked


@stage
class replay(Stage):
    """Stage: R³'s replay [83], adds `k` past episodes of the opposite outcome to groups that all score the same.

    `palaestra.credit.inject` into, then `remember` from, the table of each iteration. last: successes and failures kept
    of each task. tasks: the buffer holds only the tasks that were met last, so many. score: text of the signal that
    says how an episode went, `solved` the score above which it is a success. Replayed rows bring the log-probabilities
    of the policy that played them: the learner's ratios correct for the difference, `r3(off_policy=...)` weighs them.

    Its credit is `r3()`.

    Raises:
        InputError: k, last or tasks is too small.
    """

    adds = {"replayed": "the row was played in an earlier iteration"}

    def __init__(
        self, k: int = 1, *, last: int = 8, tasks: int = 1000, score: str | None = None, solved: float = 0.5
    ) -> None:
        self.k, self.last, self.tasks = (operator.index(number) for number in (k, last, tasks))
        if k < 0 or last < 1 or tasks < 1:
            raise InputError(f"replay: k={k} must not be negative, last={last} and tasks={tasks} must be at least 1")
        self.solved = float(solved)
        self.score = None if score is None else parse(score)
        self.buffer: Turns | None = None
        self.needs = {"group", "episode", "task"} | ({"reward"} if self.score is None else self.score.needs())

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with a column `replayed`, and replayed rows where it is True."""
        how: dict[str, Any] = {"score": self.score, "solved": self.solved}
        past = Turns(turns.frame.clear()) if self.buffer is None else self.buffer
        mixed = inject(turns, past, context.rng, k=self.k, **how)
        kept = remember(self.buffer, turns, last=self.last, **how)
        met = kept.frame.group_by("task", maintain_order=True).agg(pl.col("episode").max()).sort("episode")
        self.buffer = kept.filter(pl.col("task").is_in(met["task"].tail(self.tasks).implode()))
        return mixed

    def state_dict(self) -> dict[str, Any]:
        """State: the buffer as the bytes of a Parquet file, uint8; empty if nothing was met yet."""
        return {"buffer": packed(None if self.buffer is None else self.buffer.frame)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        past = unpacked(state["buffer"])
        self.buffer = None if past is None else Turns(past)


@stage
class anchors(Stage):
    """Stage: replaces `state` by the number of its text's cluster, GiGPO's approximate anchors [62]; see `similar`.

    Its credit is `gigpo()`, which compares steps by `state`. For policies that speak: a table of logits looks its rows
    up by `state`, and would not find them.
    """

    adds = {"state": "number of the cluster of alike texts"}

    def __init__(self, threshold: float = 0.95, *, column: str = "observation") -> None:
        similar(Turns({"group": [], column: []}), column=column, threshold=threshold)  # refuses what cannot work
        self.threshold, self.column, self.needs = threshold, column, {"group", column}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with the new `state`."""
        return similar(turns, column=self.column, threshold=self.threshold)
