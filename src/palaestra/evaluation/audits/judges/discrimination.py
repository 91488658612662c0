"""Does a judge tell anything apart? One value for everything, always yes, all ties, or a coin in both orders."""

from __future__ import annotations

from typing import Any

import polars as pl

from palaestra.evaluation.audits.finding import Finding, Verdict
from palaestra.evaluation.audits.judges.common import (
    ALPHA,
    FEW,
    filled_columns,
    given,
    keys,
    need,
    places,
    problem_column,
)
from palaestra.evaluation.intervals import wilson

NEARLY, MOSTLY = 0.95, 0.9
"""Shares of one value beyond doubt, from which on a judge tells nothing apart, and from which on nearly nothing."""
COIN = 0.6
"""Share of pairs with the same winner in both orders, below which a judge is hardly better than a coin."""


def discrimination(verdicts: pl.DataFrame) -> Finding:
    """Audit (`Finding`) of frame `verdicts`: share of each judge's and criterion's commonest value, and tied answers.

    Tied are answers to one problem.

    Of comparisons the value counts only where it is a tie, or neither 0 nor 1: one side may win every time.

    Args:
        verdicts: `item`, `value`; `judge`, `criterion`, `order`, `prompt` where there are any.

    Returns:
        Fails for a judge all of whose criteria have one value, warns of a single criterion, of a value in more than
        nine tenths beyond doubt (Wilson over items), and of comparisons whose winner is as good as a coin's.
        numbers: of the criterion with the largest share `commonest` (that share), `low`, `high`, `value`, `values` (how
        many there are), `items`; `tied` (of pairs of answers to one problem the share with equal values), `same` with
        `same_low`, `same_high` (of pairs with a winner in both orders the share with the same one).
    """
    need(verdicts, "discrimination", "item", "value")
    table = verdicts.with_columns(_v=given(verdicts, "discrimination"))
    if "order" in table.columns:
        table = table.with_columns(order=places(table, "discrimination"))
    table = table.drop_nulls("_v")
    items = table["item"].n_unique()
    if items < FEW:
        return Finding("ties", "cannot tell", f"{items} items with a verdict; it takes {FEW}", fix="judge more items")
    compared = bool(table["order"].is_not_null().any()) if "order" in table.columns else False
    by = filled_columns(table, "judge", "criterion")
    groups = (
        [_common(part, compared) for part in table.partition_by(by, maintain_order=True)]
        if by
        else [_common(table, compared)]
    )
    worst = max(groups, key=lambda each: each["low"])
    numbers = {name: float(worst[name]) for name in ("commonest", "low", "high", "value", "values", "items")}
    what = "ties" if compared and worst["value"] == 0.5 else f"{worst['value']:g}"
    of = " and ".join(str(worst[name]) for name in by if table[name].n_unique() > 1)
    sentence = f"{worst['commonest']:.1%} [{worst['low']:.1%}, {worst['high']:.1%}] of the verdicts"
    sentence += f"{f' of {of}' if of else ''} on {worst['items']} items are {what}"
    said: Verdict = "warn" if worst["low"] > MOSTLY else "pass"
    flat = [each for each in groups if each["flat"]]
    if flat:
        who = {each.get("judge") for each in flat} - {each.get("judge") for each in groups if not each["flat"]}
        said = "fail" if who else "warn"
        sentence += f": {'the judge' if who else 'this criterion'} tells nothing apart"
    tied = _tied(table) if not compared else None
    if tied is not None:
        numbers["tied"] = tied
        sentence += f"; {tied:.0%} of the pairs of answers to one {problem_column(table)} are tied"
    if compared and (coin := _winners(table)) is not None:
        same, low, high, pairs = coin
        numbers |= {"same": same, "same_low": low, "same_high": high}
        sentence += (
            f"; of {pairs} pairs with a winner in both orders {same:.0%} [{low:.0%}, {high:.0%}] have the same one"
        )
        if high < COIN and said == "pass":
            said, sentence = "warn", sentence + ": the verdicts are as good as a coin, or the answers are alike"
    fix = "" if said == "pass" else "ask for finer ratings, say in the rubric what each means, or change the model"
    return Finding("ties", said, sentence, numbers, fix=fix)


def _common(part: pl.DataFrame, compared: bool) -> dict[str, Any]:
    """The commonest value of one judge on one criterion."""
    counted = part.filter(~pl.col("_v").is_in([0.0, 1.0])) if compared else part
    items = part["item"].n_unique()
    value, count = counted["_v"].value_counts(sort=True).row(0) if len(counted) else (0.5, 0)
    share = count / len(part)
    low, high = (float(x) for x in wilson(round(share * items), items))
    named = {name: part[name][0] for name in ("judge", "criterion") if name in part.columns}
    flat = items >= FEW and (share == 1 or low > NEARLY)
    return named | {
        "commonest": share,
        "low": low,
        "high": high,
        "value": value,
        "values": part["_v"].n_unique(),
        "items": items,
        "flat": flat,
    }


def _tied(table: pl.DataFrame) -> float | None:
    """Share of pairs of answers to one problem, by one judge on one criterion, that have equal values."""
    about = problem_column(table)
    if about is None:
        return None
    by = [about, *filled_columns(table, "judge", "criterion")]
    items = table.group_by([*by, "item"]).agg(pl.col("_v").mean())
    pairs = (pl.len() * (pl.len() - 1) / 2).alias("n")
    whole, equal = (float(items.group_by(key).agg(pairs)["n"].sum()) for key in (by, [*by, "_v"]))
    return equal / whole if whole else None


def _winners(table: pl.DataFrame) -> tuple[float, float, float, int] | None:
    """Of pairs with a winner in both orders the share with the same one, its interval, and how many there are."""
    each = keys(table, without=("order",))
    side = [(pl.col("_v").filter(pl.col("order") == n).mean() - 0.5).sign().alias(f"_{n}") for n in (0, 1)]
    both = table.group_by(each).agg(*side).filter((pl.col("_0") != 0) & (pl.col("_1") != 0))
    if len(both) < FEW:
        return None
    same = int((both["_0"] == both["_1"]).sum())
    low, high = (float(x) for x in wilson(same, len(both), level=1 - ALPHA))
    return same / len(both), low, high, len(both)
