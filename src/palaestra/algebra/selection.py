"""Selection: which rows of a table are learned from, as a mask that can be computed again, counted and shown.

`keep` is one word for "the best k of a group", "at or above the 0.9 quantile of all", "a success rate from .05 to .75":
named conditions, all of which must hold. Each is judged among all units of the key, so their order does not matter; for
one after the other, nest them: `keep(where(keep(x, quantile=0.5), y), top=2)`. What is dropped says by which condition.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Literal, NamedTuple, get_args

import numpy as np
import polars as pl

from palaestra.algebra.kernels import evaluate
from palaestra.algebra.keys import is_first, joined
from palaestra.algebra.signals import Keys, Signal, SignalLike, absolute, as_signal, is_missing, mean, rank, register
from palaestra.algebra.signals import quantile as quantile_of
from palaestra.algebra.turns import Turns
from palaestra.errors import ExpressionError, nearest

Border = Literal["keep", "first", "drop"]
Closed = Literal["both", "left", "right", "none"]
Range = Sequence[float | None]
_RANK = {"keep": "min", "first": "ordinal", "drop": "max"}


def conditions(
    x: SignalLike,
    *,
    by: Keys = (),
    top: int | None = None,
    quantile: float | Range | None = None,
    between: Range | None = None,
    closed: Closed = "both",
    ties: Border = "keep",
    unit: Keys = "episode",
) -> dict[str, Signal]:
    """Dict {reason: mask signal} of the conditions that `keep` joins: missing, between, quantile, top.

    The reason is that of a dropped row.
    Args and raises: as `keep`.
    """
    for name, given, known in (("closed", closed, get_args(Closed)), ("ties", ties, get_args(Border))):
        if given not in known:
            raise ExpressionError(f"keep: {name}={given!r} is unknown{nearest(str(given), known)}")
    if top is not None and (isinstance(top, bool) or not isinstance(top, int) or top < 1):
        raise ExpressionError(f"keep: top={top!r}, expected a whole number of at least 1; for a share take quantile=")
    rows = unit == "row"
    own = joined(unit, by)
    value = as_signal(x) if rows else mean(x, over=own)
    one = None if rows else is_first(over=own)
    found = {"missing": ~is_missing(value)}
    if between is not None:
        low, high = _ends("between", between, -math.inf, math.inf)
        found["between"] = _inside(value, low, high, closed)
    if quantile is not None:
        span = quantile if isinstance(quantile, Sequence) else (quantile, None)
        ends = _ends("quantile", span, 0.0, 1.0)
        borders = [None if q is None else quantile_of(value, q=q, over=by, where=one) for q in ends]
        found["quantile"] = _inside(value, borders[0], borders[1])
    if top is not None:
        place = rank(-value, over=by, ties=_RANK[ties], where=one)  # type: ignore[arg-type]
        found["top"] = (place if rows else mean(place, over=own)) <= float(top)
    return found


@register()
def keep(
    x: SignalLike,
    *,
    by: Keys = (),
    top: int | None = None,
    quantile: float | Range | None = None,
    between: Range | None = None,
    closed: Closed = "both",
    ties: Border = "keep",
    unit: Keys = "episode",
) -> Signal:
    """Signal: mask of the units whose mean of x meets every given condition; units without x meet none.

    Args:
        x: more is better.
        by: units of one value are compared; default: all of the batch.
        top: the so many largest of each key; `-x` for the smallest.
        quantile: at or above the q-quantile of the key, linear between order statistics; or (low, high), ends included.
        between: (low, high), of which one may be None.
        closed: which of its ends are in, as `Series.is_between`.
        ties: units that are equal at the border of `top`: all are kept ("keep", so there may be more than k), the first
            of them in the table, or none ("drop").
        unit: what is kept or dropped as a whole, "row" for single rows.

    Raises:
        ExpressionError: an option is out of range.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"group": [0] * 4, "episode": [0, 1, 2, 3], "reward": [1.0, 3.0, 3.0, None]})
    >>> keep("reward", by="group", top=1).evaluate(turns), keep("reward", top=1, ties="first").evaluate(turns)
    (array([False,  True,  True, False]), array([False,  True, False, False]))
    """
    return reduce(
        Signal.__and__,
        conditions(x, by=by, top=top, quantile=quantile, between=between, closed=closed, ties=ties, unit=unit).values(),
    )


class Selection(NamedTuple):
    """Result of `selection`: mask and reason of every row, and how many units each reason dropped."""

    kept: np.ndarray
    dropped: pl.Series
    counts: dict[str, int]


def selection(turns: Turns, named: dict[str, Signal], *, unit: Keys = "episode", by: Keys = ()) -> Selection:
    """`Selection` of `Turns` by a dict of named condition signals: rows that meet all, else the first that each fails.

    counts: units in all, `kept`, and `dropped_…` for each condition; they add up.

    >>> turns = Turns({"episode": [0, 1, 2, 3], "reward": [1.0, 3.0, None, 2.0]})
    >>> found = selection(turns, conditions("reward", between=(2, None), top=1))
    >>> found.dropped.to_list()
    ['between', None, 'missing', 'top']
    >>> found.counts
    {'units': 4, 'kept': 1, 'dropped_missing': 1, 'dropped_between': 1, 'dropped_top': 1}
    """
    first, *met = evaluate(turns, is_first(over="row" if unit == "row" else joined(unit, by)), *named.values())
    held = np.stack([np.asarray(each, float) == 1 for each in met])
    kept = np.asarray(held.all(axis=0))
    reason = np.where(kept, len(named), (~held).argmax(axis=0))
    one = np.asarray(first, float) == 1
    numbers = np.bincount(reason[one], minlength=len(named) + 1).tolist()
    words = pl.Series([*named, None], dtype=pl.String)
    counts = {"units": int(one.sum()), "kept": numbers[-1]}
    counts |= {f"dropped_{name}": number for name, number in zip(named, numbers, strict=False)}
    return Selection(kept, words.gather(reason).alias("dropped"), counts)


def _ends(name: str, given: Range, low: float, high: float) -> tuple[float | None, float | None]:
    """Two ends, either of them open, ascending and within bounds."""
    ends = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else ()
    fine = len(ends) == 2 and any(end is not None for end in ends)
    fine = fine and all(end is None or (isinstance(end, int | float) and low <= end <= high) for end in ends)
    if not fine or (None not in ends and ends[0] > ends[1]):  # type: ignore[operator]
        bounds = " from 0 to 1" if high < math.inf else ""
        raise ExpressionError(f"keep: {name}={given!r}, expected (low, high){bounds}, of which one may be None")
    return ends  # type: ignore[return-value]


def _inside(value: Signal, low: Signal | float | None, high: Signal | float | None, closed: Closed = "both") -> Signal:
    """Mask of the values between two ends, of which those in `closed` count; rounding is no difference."""
    above, below = (closed in ("both", side) for side in ("left", "right"))
    parts = []
    if low is not None:
        parts.append(value >= low - _rounding(low) if above else value > low + _rounding(low))
    if high is not None:
        parts.append(value <= high + _rounding(high) if below else value < high - _rounding(high))
    return reduce(Signal.__and__, parts)


def _rounding(end: Signal | float) -> Signal | float:
    if isinstance(end, Signal):
        return 1e-12 * absolute(end)
    return 1e-12 * abs(end) if math.isfinite(end) else 0.0
