"""Asynchronous workers on a simulated clock: what is quick is delivered first, and learned from more often ([27])."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.stages.stage import Context, Stage, packed, stage, unpacked

if TYPE_CHECKING:
    from palaestra.play.executors import Plan


@stage
class asynchronous(Stage):
    """Stage: simulates asynchronous workers; the learner gets the `batch` episodes that end next, others wait.

    Each iteration the idle workers begin an episode with the policy of then; an episode takes the sum of its `seconds`.
    Episodes that are held back keep the log-probabilities of the policy that played them. What is delivered is grouped
    by its task. budget: the time after which nothing is delivered any more. The iteration's groups and group size are
    replaced by the number of idle workers.

    Its credit is `duration_aware(duration="seconds")`.

    Raises:
        InputError: fewer workers than a batch, or a batch or budget that is not positive.
    """

    adds = {"delivered": "seconds on the workers' clock at which the episode ended"}

    def __init__(
        self, *, workers: int = 32, batch: int = 8, seconds: str = "seconds", budget: float | None = None
    ) -> None:
        if not 1 <= batch <= workers or (budget is not None and budget <= 0):
            raise InputError(f"asynchronous: 1 <= batch={batch} <= workers={workers}, budget={budget} above 0")
        self.workers, self.batch, self.seconds, self.budget = workers, batch, seconds, budget
        self.needs = {"group", "episode", "task", seconds}
        self.clock, self.busy = 0.0, pl.DataFrame()

    def plan(self, plan: Plan, context: Context) -> Plan:
        """Plan with one episode for every idle worker, each of a group of its own."""
        held = self.busy.unique(["group", "episode"]).height if len(self.busy) else 0
        return dataclasses.replace(plan, groups=self.workers - held, group_size=1)

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The episodes that end next; none after the budget."""
        offset = int(self.busy["group"].to_numpy().max()) + 1 if len(self.busy) else 0
        fresh = turns.frame.with_columns(
            group=(pl.col("group") + offset).cast(pl.Int32),
            delivered=self.clock + pl.col(self.seconds).sum().over("group", "episode"),
        )
        every = pl.concat([self.busy, fresh], how="diagonal_relaxed") if len(self.busy) else fresh
        ends = every.unique(["group", "episode"], keep="first", maintain_order=True).sort(
            "delivered", maintain_order=True
        )
        done = ends.head(self.batch)
        self.clock = float(done["delivered"][-1])
        which = done.select("group", "episode")
        self.busy = every.join(which, on=["group", "episode"], how="anti", maintain_order="left")
        if self.budget is not None and self.clock > self.budget:
            return Turns(every.clear())
        given = every.join(which, on=["group", "episode"], how="semi", maintain_order="left")
        return Turns(
            given.with_columns(
                iteration=pl.lit(context.iteration, pl.Int32),
                group=(pl.col("task").rank("dense") - 1).cast(pl.Int32),
                episode=(pl.struct("group", "episode").rank("dense") - 1).cast(pl.Int32),
            )
        )

    def state_dict(self) -> dict[str, Any]:
        """State: the clock, and the episodes still held back as the bytes of a Parquet file."""
        return {"clock": self.clock, "busy": packed(self.busy if len(self.busy) else None)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        held = unpacked(state["busy"])
        self.clock, self.busy = float(state["clock"]), pl.DataFrame() if held is None else held
