"""Does a pairwise judge prefer a place? The share of the first, and P(a, b) + P(b, a) = 1."""

from __future__ import annotations

import math
from typing import Literal

import polars as pl

from palaestra.errors import InputError
from palaestra.evaluation.audits.finding import Finding
from palaestra.evaluation.audits.judges.common import (
    ALPHA,
    FEW,
    average,
    given,
    keys,
    need,
    over_items,
    places,
    sign_test,
    span,
    tested,
)
from palaestra.evaluation.intervals import wilson
from palaestra.evaluation.scorers.groups import known

Says = Literal["row", "first"]


def position_bias_test(first: int, second: int) -> float:
    """Exact two-sided p-value that the first and second answer shown are preferred equally, from the count of each.

    Ties are left out of the counts.

    >>> round(position_bias_test(202, 271), 4), round(position_bias_test(240, 233), 2)
    (0.0017, 0.78)
    """
    if min(first, second) < 0:
        raise InputError(f"position_bias_test: counts {first} and {second}; neither can be negative")
    return sign_test(first, second)


def shown(verdicts: pl.DataFrame, what: str, says: Says) -> pl.DataFrame:
    """Pairwise rows of frame `verdicts` (`order` not null) with `_first`: preference for the one shown first, 0 to 1.

    order: 0 where the row of the item was shown first, 1 where it was shown second.
    says: what `value` says is better: "row" the row of the item in whatever place (as scorers do), "first" the first.
    """
    known(what, "says", says, ("row", "first"))
    need(verdicts, what, "item", "order")
    table = verdicts.with_columns(_value=given(verdicts, what), order=places(verdicts, what))
    table = table.filter(pl.col("order").is_not_null())
    if len(table) and not table["_value"].drop_nulls().is_between(0, 1).all():
        raise InputError(
            f"{what}: values of pairwise verdicts lie in [0, 1], here are others; give P(the row is better)"
        )
    value = pl.col("_value")
    return table.with_columns(
        _first=pl.when(pl.col("order") == 0).then(value).otherwise(1 - value) if says == "row" else value
    )


def position_bias(verdicts: pl.DataFrame, *, says: Says = "row", least: float = 0.1, alpha: float = ALPHA) -> Finding:
    """Audit (`Finding`) of frame `verdicts`: share that prefers the answer shown first; half is fair over both orders.

    Args:
        verdicts: `item`, `order`, `value`.
        says: What `value` is about, see `shown`.
        least: Distance from one half that is harmless.
        alpha: Largest p that is evidence.

    Returns:
        numbers: `first` (share, a tie counts half), `low`, `high` (over items), `p` (exact; of the items that were
        judged in both orders those that the place alone decides, `flipped_first` against `flipped_second`), `items`.
        Without both orders all verdicts count. Then better answers may just stand first, so the worst verdict is
        "warn". Without a winner it cannot tell.
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
    decided = bool((table["_side"] != 0.5).any())
    means = table
    for by in ([*each, "order"], each, ["item"]):  # votes, then orders, then criteria
        means = means.group_by(by, maintain_order=True).agg(pl.col("_side").mean())
    found = over_items(means["_side"], means["item"], share=False)
    gap = means["_side"] - 0.5
    first, second = int((gap > _NOISE).sum()), int((gap < -_NOISE).sum())
    p = position_bias_test(first, second)
    low, high = (found.mean if not math.isfinite(x) else x for x in (found.low, found.high))
    numbers = {"first": found.mean, "low": found.low, "high": found.high, "p": p, "items": float(found.clusters)}
    if both:
        numbers |= {"flipped_first": float(first), "flipped_second": float(second)}
    says_it = tested(p, found.mean - 0.5, low - 0.5, high - 0.5, least=least, alpha=alpha)
    if not decided or (len(means) < FEW and says_it == "pass"):
        says_it = "cannot tell"
    shown_how = "in both orders" if both else "in one order only"
    sentence = (
        f"the first one shown wins {found.mean:.1%}{span(found.low, found.high)} of {found.clusters} pairs judged "
        f"{shown_how} (p = {p:.2g})"
    )
    if not decided:
        sentence = f"all {len(means)} pairs are ties: there is no winner that a place could decide"
    elif not both:
        says_it = "warn" if says_it in ("warn", "fail") else "cannot tell"
        sentence += "; better answers may stand first or second"
    return Finding("position", says_it, sentence, numbers, fix="" if says_it == "pass" else _BOTH)


_BOTH = "judge every pair in both orders and keep the verdicts that agree (swap_consistent)"
_NOISE = 1e-9
"""Difference of two means of verdicts that is rounding."""


def order_calibration(
    verdicts: pl.DataFrame, *, says: Says = "row", least: float = 0.1, alpha: float = ALPHA
) -> Finding:
    """Audit (`Finding`) of frame `verdicts`: P(a, b) + P(b, a) - 1 over pairs judged in both orders.

    P is the preference for the answer shown first.

    Args:
        verdicts: `item`, `order`, `value`.
        says: What `value` is about, see `shown`.
        least: Excess that is harmless.
        alpha: Largest p that is evidence.

    Returns:
        0 for a judge who does not mind the order, above 0 if the first place pays. numbers: `excess` (mean over items),
        `low`, `high`, `p` (exact sign test over items), `size` (mean absolute value), `consistent` (of the pairs with a
        winner in both orders the share with the same one) with `consistent_low`, `consistent_high` (Wilson), `items`.
        A judge that is noisy but fair is not consistent, so that share is no part of the verdict.
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
    both = both.with_columns(x=pl.col("ab") + pl.col("ba") - 1, a=pl.col("ab") - 0.5, b=0.5 - pl.col("ba"))
    items = both.group_by("item", maintain_order=True).agg(pl.col("x").mean())
    found = over_items(items["x"], items["item"], share=False)
    p = sign_test(int((items["x"] > _NOISE).sum()), int((items["x"] < -_NOISE).sum()))
    winners = both.filter((pl.col("a").abs() > _NOISE) & (pl.col("b").abs() > _NOISE))
    same = int((winners["a"].sign() == winners["b"].sign()).sum())
    low, high = (found.mean if not math.isfinite(x) else x for x in (found.low, found.high))
    numbers = {
        "excess": found.mean,
        "low": found.low,
        "high": found.high,
        "p": p,
        "size": average(both["x"].abs()),
        "items": float(found.clusters),
    }
    sentence = f"P(a,b) + P(b,a) is {1 + found.mean:.2f}{span(1 + found.low, 1 + found.high)} over {len(both)} pairs"
    if not len(winners):
        sentence += "; no pair has a winner in both orders"
        return Finding("order", "cannot tell", sentence, numbers, fix="ask for a choice, or for finer probabilities")
    ends = [float(x) for x in wilson(same, len(winners))]
    numbers |= {"consistent": same / len(winners), "consistent_low": ends[0], "consistent_high": ends[1]}
    says_it = tested(p, found.mean, low, high, least=least, alpha=alpha)
    says_it = "cannot tell" if says_it == "pass" and len(items) < FEW else says_it
    sentence += (
        f" (p = {p:.2g}); of {len(winners)} with a winner in both orders {same / len(winners):.0%} "
        f"[{ends[0]:.0%}, {ends[1]:.0%}] have the same one"
    )
    return Finding("order", says_it, sentence, numbers, fix="" if says_it == "pass" else _BOTH)
