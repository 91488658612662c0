"""Stages that add examples nobody played as they stand: revisions after an error [165], goals in hindsight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.credit import splicing
from palaestra.errors import InputError
from palaestra.judges.value_pairs import Per, mine
from palaestra.learning.stages.own_context import POLICY, rescored
from palaestra.learning.stages.stage import Context, Stage, stage


@stage
class splice(Stage):
    """Stage: adds rows: Agent-R's revision paths [165], bad prefix, revision, good path; `loss_mask`: what to clone.

    Agent-R [165] (arXiv 2501.11425). `loss_mask` is true on revisions and good paths, and on played episodes whose
    score is above `min_good`; on all else false. Learn by `clone(column="loss_mask")`. `source` says policy, prefix,
    revision or good. Its metrics count pairs, kept, and why others were not spliced, and `candidates` of pairs before.

    Args:
        bad: text of the signal that is 1 on a bad step: a verdict, a judge's, the env's.
        marker: the action of the revision, and its number among the choices, for policies that take one of them.
        score, by: of an episode, and whose episodes are compared. min_gap: good and bad differ by more. min_good: the
            good one's score is above it, and a played one's, to be cloned as it is; several numbers, one for each
            round (an iteration), of which the last stays.
        most: pairs of each bad episode at most, those with the best good one first.
        per: as of `mine`.
    """

    adds = {
        "loss_mask": "the row is learned from",
        "source": "who made the row: policy, prefix, revision, good",
        "of_row": "row of the played table that it is from; null where it was played",
    }

    def __init__(
        self,
        bad: str = "bad",
        *,
        marker: str | None = None,
        number: int | None = None,
        score: str = "reward",
        by: str | Sequence[str] = "group",
        min_gap: float = 0.0,
        min_good: float | Sequence[float] = 0.0,
        most: int | None = None,
        per: Per = "all",
        same: Sequence[str] = ("observation", "action"),
    ) -> None:
        self.bad, self.score = parse(bad, columns=(bad,)), parse(score, columns=(score,))
        self.rounds = tuple(min_good) if isinstance(min_good, Sequence) else (min_good,)
        if not self.rounds or (most is not None and most < 1):
            raise InputError(f"splice: min_good={min_good!r} needs a number, most={most} at least 1")
        self.marker, self.number, self.by, self.gap, self.most, self.per = marker, number, by, min_gap, most, per
        self.same = tuple(same)
        self.needs = {"group", "episode", "turn", "agent", "policy", *same} | self.bad.needs() | self.score.needs()

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The played rows, and below them the spliced ones."""
        least = self.rounds[min(context.iteration, len(self.rounds)) - 1]
        how = {"per": self.per, "min_gap": self.gap, "min_chosen": least, "source": "splice"}
        found, counts = mine(turns, self.score, self.by, **how)  # type: ignore[arg-type]
        if self.most is not None:
            found = found.sort("margin", descending=True, maintain_order=True)
            found = found.group_by("rejected", maintain_order=True).head(self.most).select(found.columns)
        made, spliced = splicing.splice(turns, found, self.bad, marker=self.marker, same=self.same)
        context.metrics |= {"candidates": float(counts["candidates"])}
        context.metrics |= {name: float(number) for name, number in spliced.items()}
        good, _ = mine_good(turns, self.score, least)
        own = turns.frame.with_columns(loss_mask=good, source=pl.lit(POLICY), of_row=pl.lit(None, pl.Int64))
        made = made.with_columns(_new=pl.col("source") == "revision", _number=pl.lit(self.number, pl.Int64))
        made = rescored(made.with_columns(_number=pl.when("_new").then("_number")), context, "_new", number="_number")
        return Turns(pl.concat([own, made.select(own.columns)], how="vertical"))


def mine_good(turns: Turns, score: object, least: float) -> tuple[pl.Series, int]:
    """Pair (mask of rows of `Turns` in episodes whose signal `score` is above `least`, number of these episodes)."""
    from palaestra.algebra.selection import conditions, selection

    found = selection(turns, conditions(score, between=(least, None), closed="none"))  # type: ignore[arg-type]
    return pl.Series(found.kept), found.counts["kept"]


@stage
class relabel(Stage):
    """Stage: adds hindsight copies of episodes: `goal` text becomes that of `achieved`, cut where reached, paid 1.

    Source: arXiv 1707.01495.

    Rows of `source` "hindsight" are read and scored by the policy of now: their observations hold the new goal. Its
    metrics count episodes, kept, and those that achieved nothing, or what was asked.

    Args:
        achieved, goal: columns of what the row's action achieved and of what was asked for, as texts; the goal's text
            in `observation` is replaced. method: "final", what the last row achieved; "future", for each row one drawn.
    """

    adds = {"source": "who made the row: policy or hindsight", "loss_mask": "true", "of_row": "row that it is from"}

    def __init__(
        self, achieved: str = "achieved", goal: str = "goal", *, method: Literal["final", "future"] = "final"
    ) -> None:
        self.achieved, self.goal, self.method = achieved, goal, method
        self.needs = {"group", "episode", "turn", "policy", "observation", "reward", achieved, goal}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The played rows, and below them the relabelled ones."""
        made, counts = splicing.relabel(
            turns, achieved=self.achieved, goal=self.goal, method=self.method, rng=context.rng
        )
        context.metrics |= {name: float(number) for name, number in counts.items()}
        more = {"source": pl.lit(POLICY), "loss_mask": pl.lit(True), "of_row": pl.lit(None, pl.Int64)}
        own = turns.frame.with_columns(**more)
        made = rescored(made.with_columns(_new=pl.lit(True)), context, "_new")
        return Turns(pl.concat([own, made.select(own.columns)], how="vertical"))
