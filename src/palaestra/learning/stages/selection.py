"""Stages that select rows and say so: what is kept and why not, weights, pairs, and the rounds that are learned from.

Each calls a pure function of the table (`palaestra.algebra.selection`, `palaestra.judges.value_pairs`), so that what
was selected can be computed again from the saved turns; its counts are in the metrics of the iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.selection import Border, Closed, conditions, selection
from palaestra.algebra.signals import Keys, evaluate
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.judges.pairs import marked
from palaestra.judges.value_pairs import Per, mine
from palaestra.learning.stages.stage import Context, Stage, packed, stage, unpacked


@stage
class keep(Stage):
    """Stage: columns `kept`, all conditions on signal `x` met, and `dropped`, the first failed; rows leave if `drop`.

    The signal `keep` with the same options; learn from it by `clone(column="kept")`, or give credit by
    `where("kept", ...)`. Its metrics count units: units, kept, and dropped_missing, dropped_between ….

    Args:
        x: text of the signal that is compared. drop: rows that are not kept leave the table.
    """

    adds = {"kept": "the row is learned from", "dropped": "the condition by which it is not, missing, between, ..."}

    def __init__(
        self,
        x: str,
        *,
        by: Keys = (),
        top: int | None = None,
        quantile: float | Sequence[float | None] | None = None,
        between: Sequence[float | None] | None = None,
        closed: Closed = "both",
        ties: Border = "keep",
        unit: Keys = "episode",
        drop: bool = False,
    ) -> None:
        value = parse(x, columns=(x,))
        self.named = conditions(
            value, by=by, top=top, quantile=quantile, between=between, closed=closed, ties=ties, unit=unit
        )
        self.by, self.unit, self.drop = by, unit, drop
        self.needs = {"episode"} | {name for each in self.named.values() for name in each.needs()}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with both columns, or without the rows that are not kept."""
        found = selection(turns, self.named, unit=self.unit, by=self.by)
        context.metrics |= {name: float(number) for name, number in found.counts.items()}
        told = turns.with_column(kept=pl.Series(found.kept), dropped=found.dropped)
        return Turns(told.frame.filter("kept")) if self.drop else told


@stage
class weights(Stage):
    """Stage: column `weight`, the values of a signal, for `clone(column="weight")`.

    Such as `signed("success")` or `exp_weight(gae())`.

    Rows where it is missing are not learned from. Its metrics count the rows above, below and at 0, and missing.
    """

    adds = {"weight": "by how much the row is cloned, below 0: away from it"}

    def __init__(self, weight: str) -> None:
        self.weight = parse(weight, columns=(weight,))
        self.needs = self.weight.needs()

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with `weight`."""
        (found,) = evaluate(turns, self.weight)
        value = np.asarray(found, float)
        for name, rows in (("up", value > 0), ("down", value < 0), ("zero", value == 0), ("missing", np.isnan(value))):
            context.metrics[name] = float(rows.sum())
        return turns.with_column(weight=pl.Series(value).fill_nan(None))


@stage
class pairs(Stage):
    """Stage: pairs siblings of one key by value: columns `pair`, `chosen` for `dpo()`; a row repeats for each pair.

    Options as of `palaestra.judges.value_pairs.mine`; unit "turn" is one row. Its metrics count candidates, kept, and
    what each rule dropped. Rows of units in several pairs stand once for each, so rows may be added.
    """

    adds = {"pair": "number of the comparison", "chosen": "this side was preferred"}

    def __init__(
        self,
        score: str = "reward",
        by: Keys = "group",
        *,
        per: Per = "all",
        min_gap: float = 0.0,
        min_chosen: float | None = None,
        max_rejected: float | None = None,
        distinct: float | None = None,
        failed: str | None = None,
        text: str = "action",
        unit: Keys = "episode",
    ) -> None:
        self.score = parse(score, columns=(score,))
        self.unit: Keys = ("row",) if unit == "turn" else unit
        rules: dict[str, Any] = {
            "min_gap": min_gap,
            "min_chosen": min_chosen,
            "max_rejected": max_rejected,
            "distinct": distinct,
        }
        self.how: dict[str, Any] = {"by": by, "per": per, "failed": failed, "text": text, "unit": self.unit, **rules}
        empty = Turns({"group": [], "episode": [], "reward": [], text: []})
        mine(empty, **rules, per=per, text=text)  # refuses what is out of range
        self.needs = {"group", "episode"} | self.score.needs() | ({text} if distinct is not None else set())

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with the columns of pairs, and rows repeated for units in several pairs."""
        found, counts = mine(turns, self.score, **self.how)
        context.metrics |= {name: float(number) for name, number in counts.items()}
        return marked(turns, found, unit=self.unit)


@stage
class accumulate(Stage):
    """Stage: adds rows: all, or where `where` holds, of the `last` iterations before this one, as groups of this one.

    A quantile over a buffer is one over this table. What the rows say of who played them stays: log-probabilities are
    those of then, `policy_version` says when. `fresh` is false on them. Stand it before the stages that select; it runs
    after the reward, so that metrics are those of what was played now.

    Args:
        last: iterations that are kept beside the present one. where: text of a mask of the rows worth keeping.
    """

    adds = {"fresh": "the row was played in this iteration"}

    def __init__(self, last: int = 4, *, where: str | None = None) -> None:
        if last < 1:
            raise InputError(f"accumulate: last={last} must be at least 1")
        self.last, self.where = int(last), None if where is None else parse(where, columns=(where,))
        self.needs = {"group", "episode", "reward"} | (set() if self.where is None else self.where.needs())
        self.past: list[pl.DataFrame] = []

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with older rows below."""
        now = turns.frame.with_columns(fresh=pl.lit(True))
        parts, last = [now], int(now["group"].max())  # type: ignore[arg-type]
        for older in self.past:
            numbered = older.with_columns(group=(pl.col("group") + (last + 1)).cast(now.schema["group"]))
            if "iteration" in now.columns:
                numbered = numbered.with_columns(iteration=pl.lit(now["iteration"][0], now.schema["iteration"]))
            parts.append(numbered.with_columns(fresh=pl.lit(False)))
            last += 1 + int(older["group"].max())  # type: ignore[arg-type]
        kept = turns.frame
        if self.where is not None:
            (held,) = evaluate(turns, self.where)
            kept = kept.filter(pl.Series(np.asarray(held, float) == 1))
        self.past = [*self.past, *([kept] if len(kept) else [])][-self.last :]
        context.metrics["old_rows"] = float(sum(map(len, parts[1:])))
        return Turns(pl.concat(parts, how="diagonal_relaxed"))

    def state_dict(self) -> dict[str, Any]:
        """State: the older tables as bytes of Parquet files."""
        return {"past": [packed(each) for each in self.past]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.past = [found for each in state["past"] if (found := unpacked(each)) is not None]
