"""Does a pairwise judge prefer a place? The share of the first, and P(a, b) + P(b, a) = 1."""

from __future__ import annotations

from typing import Literal

import polars as pl
import scipy

from palaestra.errors import InputError
from palaestra.evaluation.audits.finding import Finding
from palaestra.evaluation.audits.judges.common import average, given, keys, need, over_items, span, verdict
from palaestra.evaluation.intervals import wilson
from palaestra.evaluation.scorers.groups import known

Says = Literal["row", "first"]


def position_bias_test(first: int, second: int) -> float:
    """Exact two-sided p of the number of times that the first and the second one shown were preferred, ties left out.

    >>> round(position_bias_test(202, 271), 4), round(position_bias_test(240, 233), 2)
    (0.0017, 0.78)
    """
    if min(first, second) < 0:
        raise InputError(f"position_bias_test: counts {first} and {second}; neither can be negative")
    return float(scipy.stats.binomtest(first, first + second).pvalue) if first + second else 1.0


def shown(verdicts: pl.DataFrame, what: str, says: Says) -> pl.DataFrame:
    """The verdicts on two shown answers, with `_first`, the preference for the one that was shown first.

    says: what `value` says is better: "row" the row of the item in whatever place (as scorers do), "first" the first.
    """
    known(what, "says", says, ("row", "first"))
    need(verdicts, what, "item", "order")
    table = verdicts.with_columns(_value=given(verdicts, what)).filter(pl.col("order").is_not_null())
    if len(table) and not table["_value"].drop_nulls().is_between(0, 1).all():
        raise InputError(
            f"{what}: values of pairwise verdicts lie in [0, 1], here are others; give P(the row is better)"
        )
    value = pl.col("_value")
    return table.with_columns(
        _first=pl.when(pl.col("order") == 0).then(value).otherwise(1 - value) if says == "row" else value
    )


def position_bias(verdicts: pl.DataFrame, *, says: Says = "row", least: float = 0.1) -> Finding:
    """How often is the answer preferred that was shown first? Half of the time, if each pair is shown in both orders.

    numbers: `first` (share, a tie counts half), `low`, `high` (over items), `p` (exact; of the items that were judged
    in both orders those that the place alone decides, `flipped_first` against `flipped_second`; without both orders
    all verdicts, and then better answers may just stand first), `items`. Harmless is .5 ± least.
    """
    table = shown(verdicts, "position_bias", says).drop_nulls("_first")
    if not len(table):
        return Finding("position", "cannot tell", "no verdict compares two answers", fix=_BOTH)
    side = pl.when(pl.col("_first") == 0.5).then(0.5).otherwise((pl.col("_first") > 0.5).cast(pl.Float64))
    table = table.with_columns(_side=side)
    each = keys(table, without=("order",))
    paired = table.filter(pl.col("order").n_unique().over(each) == 2)
    both = len(paired) > 0
    table = paired if both else table
    by = [*each, "order"]
    means = (
        table.group_by(by, maintain_order=True)
        .agg(pl.col("_side").mean())
        .group_by(each, maintain_order=True)
        .agg(pl.col("_side").mean())
    )
    found = over_items(means["_side"], means["item"], share=False)
    first, second = int((means["_side"] > 0.5).sum()), int((means["_side"] < 0.5).sum())
    p = position_bias_test(first, second)
    numbers = {"first": found.mean, "low": found.low, "high": found.high, "p": p, "items": float(found.clusters)}
    if both:
        numbers |= {"flipped_first": float(first), "flipped_second": float(second)}
    says_it = (
        "fail"
        if p < 0.01 and abs(found.mean - 0.5) > least
        else verdict(found.low, found.high, found.mean, target=0.5, least=least)
    )
    if both and not first + second and len(means) >= 10:
        says_it = "pass"  # the place decided nothing; equal values have no interval
    shown_how = "in both orders" if both else "in one order only"
    sentence = (
        f"the first one shown wins {found.mean:.1%}{span(found.low, found.high)} of {found.clusters} pairs judged "
        f"{shown_how} (p = {p:.2g})"
    )
    if not both and says_it == "pass":
        says_it, sentence = "cannot tell", sentence + "; better answers may stand second"
    return Finding("position", says_it, sentence, numbers, fix="" if says_it == "pass" else _BOTH)  # type: ignore[arg-type]


_BOTH = "judge every pair in both orders and keep the verdicts that agree (swap_consistent)"


def order_calibration(verdicts: pl.DataFrame, *, says: Says = "row", least: float = 0.1) -> Finding:
    """P(a, b) + P(b, a) - 1 over the pairs that were judged in both orders, where P is that of the first one shown.

    0 for a judge who does not mind the order; above: the first place pays. numbers: `excess` (mean over items), `low`,
    `high`, `size` (mean absolute value), `consistent` (share with the same winner in both orders, a tie in both
    counts) with `consistent_low`, `consistent_high` (Wilson), `items`.
    """
    each = keys(verdicts, without=("order",))
    table = shown(verdicts, "order_calibration", says).drop_nulls("_first")
    both = (
        table.group_by(each, maintain_order=True)
        .agg(
            ab=pl.col("_first").filter(pl.col("order") == 0).mean(),
            ba=pl.col("_first").filter(pl.col("order") == 1).mean(),
        )
        .drop_nulls()
    )
    if not len(both):
        return Finding("order", "cannot tell", "no pair was judged in both orders", fix=_BOTH)
    both = both.with_columns(
        x=pl.col("ab") + pl.col("ba") - 1, same=(pl.col("ab") - 0.5).sign() == (0.5 - pl.col("ba")).sign()
    )
    found = over_items(both["x"], both["item"], share=False)
    same = int(both["same"].sum())
    low, high = (float(x) for x in wilson(same, len(both)))
    numbers = {
        "excess": found.mean, "low": found.low, "high": found.high, "size": average(both["x"].abs()),
        "consistent": same / len(both), "consistent_low": low, "consistent_high": high, "items": float(found.clusters),
    }  # fmt: skip
    says_it = verdict(found.low, found.high, found.mean, least=least)
    if both["x"].abs().max() == 0:
        says_it = "pass"
    elif high < 0.8 and says_it in ("pass", "cannot tell"):
        says_it = "warn"
    sentence = (
        f"P(a,b) + P(b,a) is {1 + found.mean:.2f}{span(1 + found.low, 1 + found.high)} over {len(both)} pairs; "
        f"{same / len(both):.0%} [{low:.0%}, {high:.0%}] have the same winner in both orders"
    )
    return Finding("order", says_it, sentence, numbers, fix="" if says_it == "pass" else _BOTH)
