"""Old successes once more where they are neither trivial nor foreign, and a reference that follows in phases."""

from __future__ import annotations

from typing import Any

import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.returns import episode_score
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.stages.own_context import rescored
from palaestra.learning.stages.stage import Context, Stage, packed, stage, unpacked

KEY = ("group", "episode")


@stage
class success_replay(Stage):
    """Stage: adds rows of past successes whose chance p under the policy of now is `low` < p <= `high`.

    WebRL's replay [179] (arXiv 2411.02337). p is the geometric mean probability of the row's tokens under the policy of
    now; rows outside low < p <= high are left out, so an old episode has gaps: give
    credit by `where("replayed", 1, …)`. At most `most` times as many rows as the iteration has. Its metrics count old
    rows, trivial, foreign, and replayed.

    Args:
        low, high: of p. most: 0 replays nothing. tasks: whose last success is kept, the newest.
        score: text of the signal that says how an episode went; above 0 it is a success.

    Raises:
        InputError: a number is out of range.
    """

    adds = {"replayed": "the row was played in an earlier iteration"}

    def __init__(
        self, *, low: float = 0.5, high: float = 0.95, most: float = 2.0, tasks: int = 1000, score: str = "reward"
    ) -> None:
        if not 0 <= low < high <= 1 or most < 0 or tasks < 1:
            raise InputError(f"success_replay: 0 <= low={low} < high={high} <= 1, most={most} >= 0, tasks={tasks} >= 1")
        self.low, self.high, self.most, self.tasks = low, high, most, tasks
        self.score = parse(score, columns=(score,))
        self.needs = {"group", "episode", "task", "policy", "observation", "action_ids"} | self.score.needs()
        self.past: pl.DataFrame | None = None

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with old rows below."""
        frame = turns.with_column(_went=episode_score(self.score)).frame
        good = frame.filter(pl.col("_went") > 0).drop("_went")
        now = turns.frame.with_columns(replayed=pl.lit(False))
        parts = [now]
        if self.past is not None and self.most and len(self.past):
            parts.append(self._again(self.past, now, context))
        self.past = _remembered(self.past, good, self.tasks)
        return Turns(pl.concat(parts, how="diagonal_relaxed"))

    def _again(self, past: pl.DataFrame, now: pl.DataFrame, context: Context) -> pl.DataFrame:
        """Old rows as the policy of now scores them, in random order of their episodes, as many as are allowed."""
        made = rescored(past.with_columns(_new=pl.lit(True)), context, "_new").drop("_new")
        p = pl.col("logprobs").list.mean().exp()
        kept = made.filter((p > self.low) & (p <= self.high)).with_columns(replayed=pl.lit(True))
        counts = kept.group_by("task", maintain_order=True).len()
        order = counts[context.rng.permutation(len(counts))].filter(pl.col("len").cum_sum() <= self.most * len(now))
        last = int(now["group"].max()) + 1  # type: ignore[arg-type]
        numbers = order.select("task", group=(last + pl.int_range(pl.len())).cast(now.schema["group"]))
        kept = kept.drop("group").join(numbers, on="task", maintain_order="left")
        kept = kept.with_columns(episode=pl.lit(0, now.schema["episode"]))
        if "iteration" in now.columns:
            kept = kept.with_columns(iteration=pl.lit(now["iteration"][0], now.schema["iteration"]))
        context.metrics |= {
            "old": float(len(made)),
            "trivial": float(made.select(p > self.high).to_series().sum()),
            "foreign": float(made.select(p <= self.low).to_series().sum()),
            "replayed": float(len(kept)),
        }
        return kept

    def state_dict(self) -> dict[str, Any]:
        """State: the successes as the bytes of a Parquet file."""
        return {"past": packed(self.past)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.past = unpacked(state["past"])


def _remembered(past: pl.DataFrame | None, good: pl.DataFrame, tasks: int) -> pl.DataFrame | None:
    """One success of each task, the newest, of the `tasks` tasks that were solved last."""
    first = good.select("task", *KEY).unique("task", keep="first", maintain_order=True)
    new = good.join(first, on=["task", *KEY], how="semi", maintain_order="left")
    if not len(new):
        return past
    if past is not None:
        new = pl.concat([past.join(new, on="task", how="anti", maintain_order="left"), new], how="diagonal_relaxed")
    names = new["task"].unique(maintain_order=True).tail(tasks)
    return new.filter(pl.col("task").is_in(names.implode()))


@stage
class new_reference(Stage):
    """Stage: every `every` iterations the current policy becomes the reference of `kl`, `ratio_regression` and so on.

    Without it they hold on to the policy with which the run began. For learners that keep a reference in one piece.

    Raises:
        InputError: every is less than 1; when it is called, no term has a reference.
    """

    def __init__(self, every: int = 10) -> None:
        if every < 1:
            raise InputError(f"new_reference: every={every} must be at least 1")
        self.every = every

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table unchanged."""
        references: Any = getattr(context.learner, "references", {})
        if not references:
            raise InputError("new_reference: no term of learn.terms has a reference, as kl() does; leave the stage out")
        if (context.iteration - 1) % self.every == 0:
            for name, reference in references.items():
                reference.load_state_dict(context.team.policies[name].state_dict())  # type: ignore[attr-defined]
        return turns
