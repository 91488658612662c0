"""A scorer that looks something up before it scores ([35]), and one that is asked only where the others are silent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from palaestra.errors import InputError
from palaestra.foundation.registry import load_object
from palaestra.judges.protocol import SCORERS, Scorer
from palaestra.judges.scorers import Members, build

Tool = Callable[[Mapping[str, Any]], str | None]
"""From a row to what the tool says of it; None: it has no answer."""
CALLS = {
    "item": pl.UInt32,
    "role": pl.String,
    "tool": pl.String,
    "observation": pl.String,
    "ok": pl.Boolean,
    "cost": pl.Float64,
}
"""A row per call of a tool, so that what a judge does is counted and priced as any agent's turns."""


class ToolScorer(Members):
    """Scorer: `informed` reads what `tool` says of each row in column `observation`; `plain` scores where it fails.

    Where the tool fails (it raises, or says nothing) the tool-free scorer decides: a missing observation is no verdict
    of its own. The mechanism of Themis (arXiv 2310.01045); its joint loss is a language model's loss on the trace plus
    half a Bradley-Terry loss.

    Args:
        informed: scores rows that have an `observation`. plain: the same rows without one.
        tool: from a row to a text. cost: of a call, in the endpoint's currency.

    calls: `CALLS` of the last time it scored.

    >>> from types import SimpleNamespace as Made
    >>> sees = Made(name="sees", score=lambda rows, **_: (rows["observation"] == rows["response"]).cast(pl.Float64))
    >>> guesses = Made(name="guesses", score=lambda rows, **_: pl.Series([0.5] * len(rows)))
    >>> scorer = ToolScorer(sees, guesses, lambda row: "12" if row["prompt"] == "3*4" else None, cost=0.01)
    >>> scorer.score(pl.DataFrame({"prompt": ["3*4", "?"], "response": ["12", "1"]})).to_list()
    [1.0, 0.5]
    >>> scorer.calls.select("ok", "cost").rows()
    [(True, 0.01), (False, 0.01)]
    """

    def __init__(
        self,
        informed: Scorer,
        plain: Scorer,
        tool: Tool,
        *,
        cost: float = 0.0,
        name: str = "tooled",
        called: str = "tool",
    ) -> None:
        self.informed, self.plain, self.tool, self.cost, self.name, self.called = (
            informed,
            plain,
            tool,
            cost,
            name,
            called,
        )
        self.members = (informed, plain)
        self.calls = pl.DataFrame(schema=CALLS)

    def score(
        self, rows: pl.DataFrame, *, reference: pl.DataFrame | None = None, condition: pl.DataFrame | None = None
    ) -> pl.Series:
        """One score per row, Float64; the tool is called once for each row, and for nothing else. See `Scorer`."""
        said = [self._call(row) for row in rows.iter_rows(named=True)]
        seen = pl.Series("observation", said, pl.String)
        ok = seen.is_not_null()
        known = {"role": pl.lit("judge"), "tool": pl.lit(self.called), "cost": pl.lit(self.cost)}
        calls = pl.DataFrame({"item": range(len(rows)), "observation": seen, "ok": ok}).with_columns(**known)
        self.calls = calls.select(pl.col(name).cast(kind) for name, kind in CALLS.items())
        parts = []
        for scorer, where in ((self.informed, ok), (self.plain, ~ok)):
            at = where.arg_true()
            if len(at):
                given = rows[at].with_columns(seen[at]) if scorer is self.informed else rows[at]
                values = scorer.score(given, reference=_at(reference, at), condition=_at(condition, at))
                parts.append(pl.DataFrame({"at": at, "score": values.cast(pl.Float64)}))
        return pl.concat(parts).sort("at")["score"] if parts else pl.Series("score", [], pl.Float64)

    def _call(self, row: Mapping[str, Any]) -> str | None:
        try:
            return self.tool(row)
        except Exception:  # whatever a tool does, the judge goes on without it
            return None


class Cascade(Members):
    """Scorer that takes, for each row, the first value that several scorers give; `asked` names the one that gave it.

    A scorer is asked only for the rows that all before it left missing, so the dear one comes last.

    >>> from types import SimpleNamespace as Made
    >>> known = {"7": 1.0}
    >>> rule = Made(name="rule", score=lambda rows, **_: pl.Series([known.get(x) for x in rows["response"]]))
    >>> judge = Made(name="judge", score=lambda rows, **_: pl.Series([0.3] * len(rows)))
    >>> both = Cascade([rule, judge])
    >>> both.score(pl.DataFrame({"response": ["7", "?"]})).to_list(), both.asked.to_list()
    ([1.0, 0.3], ['rule', 'judge'])
    """

    def __init__(self, scorers: Sequence[Scorer], *, name: str = "cascade") -> None:
        if not scorers:
            raise InputError("Cascade: it takes a scorer at least")
        self.members, self.name = tuple(scorers), name
        self.asked = pl.Series("asked", [], pl.String)

    def score(
        self, rows: pl.DataFrame, *, reference: pl.DataFrame | None = None, condition: pl.DataFrame | None = None
    ) -> pl.Series:
        """One score per row, the first that a scorer gives; missing where all of them give none. See `Scorer`."""
        values = np.full(len(rows), np.nan)
        asked: list[str | None] = [None] * len(rows)
        for scorer in self.members:
            at = np.flatnonzero(np.isnan(values))
            if not len(at):
                break
            where = pl.Series(at, dtype=pl.UInt32)
            found = scorer.score(rows[where], reference=_at(reference, where), condition=_at(condition, where))
            values[at] = found.cast(pl.Float64).fill_null(float("nan")).to_numpy()
            for i in at[~np.isnan(values[at])]:
                asked[i] = scorer.name
        self.asked = pl.Series("asked", asked, pl.String)
        return pl.Series("score", values, nan_to_null=True)


@SCORERS.register()
def cascade(members: Sequence[str | Any]) -> Cascade:
    """Makes a `Cascade` scorer of a list of scorers: for each row the first value given, e.g. rules, then a judge."""
    return Cascade([build(each) for each in members])


@SCORERS.register()
def tooled(informed: str | Any, plain: str | Any, tool: str | Tool, *, cost: float = 0.0) -> ToolScorer:
    """Makes a `ToolScorer`: `informed` reads a tool's answer about a row; `plain` scores it where the tool fails.

    The tool is `module:function`.

    informed, plain: scorers or their texts; the first one finds what the tool said in the column `observation`.
    """
    called = load_object(tool, "tool") if isinstance(tool, str) else tool
    return ToolScorer(build(informed), build(plain), called, cost=cost)


def _at(table: pl.DataFrame | None, at: pl.Series) -> pl.DataFrame | None:
    return None if table is None else table[at]
