"""Several verdicts become one value. What cannot be read is in no statistic and no count, and a tie has a rule.

Left out: how far judges agree (`evaluation.audits`), and votes on answers instead of verdicts (`rewards.judged.votes`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import polars as pl

from palaestra.errors import InputError, nearest, need_columns

Method = Literal["mean", "median", "mode", "min", "weighted", "unanimous"]
Ties = Literal["missing", "first", "random", "mean"]
METHODS = ("mean", "median", "mode", "min", "weighted", "unanimous")
TIES = ("missing", "first", "random", "mean")


def aggregate(
    verdicts: pl.DataFrame,
    *,
    by: Sequence[str] = ("item", "criterion"),
    method: Method = "mean",
    ties: Ties = "missing",
    weights: Mapping[str, float] | None = None,
    seed: int = 0,
) -> pl.DataFrame:
    """Table of verdicts combined to one row per key: `value` by `method`, `read` (readable ones), `asked` (all).

    method: `mean`; `median`, the middle value; `mode`, the most frequent one; `min`, the strictest; `weighted`, by
    the judges' weights, Σ w · value / Σ w; `unanimous`, the value that all gave who could be read, else missing.
    ties: of several most frequent values, or of two different middle ones: `missing` takes none, `first` that which was
    given first, `random` one drawn from the seed, `mean` their mean. A key with no readable verdict is missing; a value
    that is NaN is none.

    Raises:
        InputError: method, ties or a judge's weight is unknown, a weight is no number from 0, or `value` holds no
            numbers.
        MissingColumnError: names the column.

    >>> votes = pl.DataFrame({"item": [0] * 5, "criterion": ["safe"] * 5, "value": [2.0, 0.0, 2.0, 0.0, None]})
    >>> [aggregate(votes, method="mode", ties=rule)["value"].item() for rule in ("missing", "first", "mean")]
    [None, 2.0, 1.0]
    """
    for option, given, known in (("method", method, METHODS), ("ties", ties, TIES)):
        if given not in known:
            raise InputError(f"aggregate: {option}={given!r}{nearest(str(given), known)}")
    keys = [by] if isinstance(by, str) else list(by)
    need_columns("aggregate", verdicts.columns, (*keys, *(["judge"] if method == "weighted" else [])))
    if not keys:
        raise InputError("aggregate: by=() names no key; give one, e.g. item")
    verdicts = _numbers(verdicts, "aggregate")
    every = verdicts.group_by(keys, maintain_order=True).agg(
        read=pl.col("value").count().cast(pl.UInt32), asked=pl.len().cast(pl.UInt32)
    )
    read = verdicts.with_row_index("place").filter(pl.col("value").is_not_null())
    if method == "weighted":
        read = read.with_columns(weight=_weights(verdicts, weights))
        sums = read.group_by(keys).agg(
            value=(pl.col("value") * pl.col("weight")).sum() / pl.col("weight").sum(), total=pl.col("weight").sum()
        )
        found = sums.with_columns(value=pl.when(pl.col("total") > 0).then("value"))
    elif method in ("mean", "min"):
        found = read.group_by(keys).agg(value=pl.col("value").mean() if method == "mean" else pl.col("value").min())
    else:
        found = _tied(_candidates(read, keys, method), keys, "missing" if method == "unanimous" else ties, seed)
    table = every.join(found.select(*keys, "value"), on=keys, how="left", nulls_equal=True, maintain_order="left")
    return table.select(*keys, pl.col("value").cast(pl.Float64), "read", "asked")


def _numbers(verdicts: pl.DataFrame, what: str) -> pl.DataFrame:
    """The verdicts with `value` as Float64, NaN as null."""
    need_columns(what, verdicts.columns, ["value"])
    if not ((kind := verdicts["value"].dtype).is_numeric() or kind in (pl.Boolean, pl.Null)):
        raise InputError(f"{what}: column 'value' holds {kind}, expected numbers")
    return verdicts.with_columns(pl.col("value").cast(pl.Float64).fill_nan(None))


def _weights(verdicts: pl.DataFrame, weights: Mapping[str, float] | None) -> pl.Expr:
    judges = verdicts["judge"].cast(pl.String).unique().drop_nulls().to_list()
    for judge in judges:
        if judge not in (weights or {}):
            raise InputError(f"aggregate: judge {judge!r} has no weight{nearest(judge, weights or {})}")
    table = {judge: float(weight) for judge, weight in (weights or {}).items()}
    for judge, weight in table.items():
        if not 0 <= weight < math.inf:
            raise InputError(f"aggregate: judge {judge!r} has weight {weight}; expected a number from 0")
    return pl.col("judge").cast(pl.String).replace_strict(table, return_dtype=pl.Float64)


def _candidates(read: pl.DataFrame, keys: list[str], method: str) -> pl.DataFrame:
    """The values of a key that may be its answer, each once, with the place where it was given first."""
    if method == "median":
        middle = read.sort("value", maintain_order=True).with_columns(
            rank=pl.int_range(pl.len()).over(keys), number=pl.len().over(keys)
        )
        low, high = (pl.col("number") - 1) // 2, pl.col("number") // 2
        inner = middle.filter((pl.col("rank") == low) | (pl.col("rank") == high)).select(*keys, "value").unique()
        read = read.join(inner, on=[*keys, "value"], how="semi", nulls_equal=True)
    found = read.group_by([*keys, "value"]).agg(votes=pl.len(), place=pl.col("place").min())
    return found if method != "mode" else found.filter(pl.col("votes") == pl.col("votes").max().over(keys))


def _tied(candidates: pl.DataFrame, keys: list[str], ties: Ties, seed: int) -> pl.DataFrame:
    ordered = candidates.sort("place")  # the order of a group_by is nobody's, and the draws follow it
    if ties == "random":
        luck = pl.Series("luck", np.random.default_rng(seed).random(len(ordered)), pl.Float64)
        ordered = ordered.with_columns(luck).sort("luck")
    value = pl.col("value")
    one = pl.when(pl.len() == 1).then(value.first()) if ties == "missing" else value.first()
    return ordered.group_by(keys).agg(value=value.mean() if ties == "mean" else one)


# -- both presentation orders -----------------------------------------------------------------------------------------


def swap_consistent(first: np.ndarray, swapped: np.ndarray, *, otherwise: float = 0.0) -> np.ndarray:
    """Array per pair: mean of signed preferences `first` and `swapped` (both orders) if signs agree; else `otherwise`.

    float[pairs].

    Where they do not, the judge answered the position and not the pair: `otherwise`, 0 being a tie. Missing if either
    is. [188] SALMON (arXiv 2310.05910); float[pairs] each.

    >>> swap_consistent(np.array([3.0, -0.6, 1.2]), np.array([1.0, -0.2, -0.4])).tolist()
    [2.0, -0.4, 0.0]
    """
    both = np.asarray(first, float) + np.asarray(swapped, float)
    return np.where(np.isnan(both) | (np.sign(first) == np.sign(swapped)), both / 2, otherwise)


def both_orders(verdicts: pl.DataFrame, *, by: Sequence[str] = ("item", "criterion", "judge")) -> pl.DataFrame:
    """Table per pair of verdicts: `value`, mean of both orders; `consistent`: they agree; `first`: first won twice.

    Here the first is the one shown first.

    A pair with an order that gave no verdict is missing in all three; `first` too where the two agree or one is a tie.
    Votes of one order count as their mean.
    """
    need_columns("both_orders", verdicts.columns, (*by, "order"))
    verdicts = _numbers(verdicts, "both_orders")
    given, swapped = (pl.col("value").filter(pl.col("order") == order).mean() for order in (0, 1))
    table = verdicts.group_by(list(by), maintain_order=True).agg(given=given, swapped=swapped)
    side, other = (pl.col(name) - 0.5 for name in ("given", "swapped"))
    return table.select(
        *by,
        value=(pl.col("given") + pl.col("swapped")) / 2,
        consistent=side.sign() == other.sign(),
        first=pl.when((side * other) < 0).then(side > 0),
    )


def order_balance(verdicts: pl.DataFrame, *, by: Sequence[str] = ("judge", "criterion")) -> pl.DataFrame:
    """Table of position bias in verdicts per judge and criterion: `pairs` asked both ways, share `consistent`, `first`.

    first: of the decided single verdicts, the share that the side shown first won; 0.5 is fair. Missing without any.
    """
    keys = list(by)
    verdicts = _numbers(verdicts, "order_balance")
    pairs = both_orders(verdicts, by=("item", *(key for key in keys if key != "item")))
    shares = pairs.group_by(keys, maintain_order=True).agg(
        pairs=pl.col("consistent").count(), consistent=pl.col("consistent").mean()
    )
    decided = verdicts.filter((pl.col("value") != 0.5) & pl.col("order").is_not_null())
    won = decided.group_by(keys).agg(first=((pl.col("value") > 0.5) ^ (pl.col("order") == 1)).mean())
    return shares.join(won, on=keys, how="left", nulls_equal=True, maintain_order="left")
