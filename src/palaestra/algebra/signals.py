"""The words of the algebra: functions that build a `Signal`, a composable column expression over `Turns`.

How statistics count (`unit`): `row` = every value is a sample (a turn, or a token of a per-token signal), `episode` =
each episode counts once, with its mean over its rows in that key; `unique` = each distinct value counts once (distinct
as float32, so that the order of a sum does not matter). `where` removes rows from the statistic and its count, not from
the result. `singleton` is what a key with one sample yields: `zero`, or `raw` (the value passes through). A key without
variance yields exactly 0.
"""

from __future__ import annotations

import operator
from typing import Any, Literal, get_args

import polars as pl

from palaestra.algebra.kernels import evaluate
from palaestra.algebra.text import short
from palaestra.algebra.tree import (
    REGISTRY,
    Keys,
    Signal,
    SignalLike,
    Value,
    as_signal,
    children,
    col,
    is_in,
    lit,
    register,
    walk,
)
from palaestra.errors import ExpressionError, nearest

Unit = Literal["row", "episode", "unique"]
Singleton = Literal["zero", "raw"]
Summary = Literal["mean", "total", "highest", "lowest"]
Ties = Literal["average", "min", "max", "dense", "ordinal"]

__all__ = [
    "REGISTRY",
    "Keys",
    "Signal",
    "SignalLike",
    "Singleton",
    "Summary",
    "Ties",
    "Unit",
    "Value",
    "absolute",
    "as_signal",
    "centre",
    "children",
    "clip",
    "col",
    "count",
    "cumulative",
    "evaluate",
    "exp",
    "fill_missing",
    "highest",
    "is_in",
    "is_missing",
    "leave_one_out",
    "lit",
    "log",
    "lowest",
    "mean",
    "per_token",
    "per_turn",
    "quantile",
    "rank",
    "ratio",
    "register",
    "shift",
    "short",
    "sign",
    "standardise",
    "std",
    "total",
    "walk",
    "where",
]


def _keys(over: Keys) -> tuple[str | Signal, ...]:
    """Names of columns stay names, also when written as `col(name)`; anything else is a computed key."""
    keys = (over,) if isinstance(over, str | Signal | pl.Expr) else tuple(over)
    signals = (key if isinstance(key, str) else as_signal(key) for key in keys)
    return tuple(key.options["name"] if isinstance(key, Signal) and key.op == "col" else key for key in signals)


def _choice(op: str, option: str, value: object, choices: Any) -> None:
    known = get_args(choices)
    if not isinstance(value, str) or value not in known:
        raise ExpressionError(f"{op}: {option}={value!r} is not one of {known}{nearest(str(value), known)}")


# -- row by row -------------------------------------------------------------------------------------------------------


@register()
def where(condition: SignalLike, then: SignalLike, otherwise: SignalLike | None = None) -> Signal:
    """Signal: `then` where the condition holds, else `otherwise` (None: missing); missing where the condition is.

    Without `otherwise` the others are missing too: they take no part in statistics and are not trained on.
    """
    branches = [then] if otherwise is None else [then, otherwise]
    return Signal("where", as_signal(condition), *map(as_signal, branches))


@register()
def clip(x: SignalLike, *, low: float | None = None, high: float | None = None) -> Signal:
    """Signal: x limited to [low, high]; either end may be open."""
    low, high = (None if end is None else float(end) for end in (low, high))
    return Signal("clip", as_signal(x), low=low, high=high)


@register()
def exp(x: SignalLike) -> Signal:
    """Signal: exponential function of x."""
    return Signal("exp", as_signal(x))


@register()
def log(x: SignalLike) -> Signal:
    """Signal: natural logarithm of x; not finite at 0 and below, which is an error."""
    return Signal("log", as_signal(x))


@register()
def absolute(x: SignalLike) -> Signal:
    """Signal: absolute value of x."""
    return Signal("absolute", as_signal(x))


@register()
def sign(x: SignalLike) -> Signal:
    """Signal: sign of x: -1, 0 or 1."""
    return Signal("sign", as_signal(x))


@register()
def is_missing(x: SignalLike) -> Signal:
    """Signal: mask of the rows where x is missing."""
    return Signal("is_missing", as_signal(x))


@register()
def fill_missing(x: SignalLike, value: SignalLike) -> Signal:
    """Signal x with `value` where x is missing. Not scored is not zero, so zeros have to be asked for."""
    return Signal("fill_missing", as_signal(x), as_signal(value))


@register()
def ratio(top: SignalLike, bottom: SignalLike, otherwise: SignalLike = 0.0) -> Signal:
    """Signal: top / bottom, and `otherwise` on rows where bottom is 0; missing where one of the two is."""
    return Signal("ratio", as_signal(top), as_signal(bottom), as_signal(otherwise))


@register()
def per_turn(x: SignalLike, *, method: Summary = "mean") -> Signal:
    """Signal: one value per turn from one per token, by mean, total, highest or lowest; missing without tokens."""
    _choice("per_turn", "method", method, Summary)
    return Signal("per_turn", as_signal(x), method=method)


@register()
def per_token(x: SignalLike, like: SignalLike = "logprobs") -> Signal:
    """Signal: each turn's value repeated on its tokens; `like` tells how many there are."""
    return Signal("per_token", as_signal(x), as_signal(like))


# -- statistics over keys ---------------------------------------------------------------------------------------------


def _statistic(op: str, x: SignalLike, over: Keys, unit: Unit, where: SignalLike | None, **options: Any) -> Signal:
    _choice(op, "unit", unit, Unit)
    if "singleton" in options:
        _choice(op, "singleton", options["singleton"], Singleton)
    if "ddof" in options:
        options["ddof"] = operator.index(options["ddof"])
    if "eps" in options:
        options["eps"] = float(options["eps"])
    for option in {"ddof", "eps"} & options.keys():
        if not 0 <= options[option] < float("inf"):
            raise ExpressionError(f"{op}: {option}={options[option]} must be a number of at least 0")
    mask = None if where is None else as_signal(where)
    return Signal(op, as_signal(x), over=_keys(over), unit=unit, where=mask, **options)


@register()
def mean(x: SignalLike, *, over: Keys, unit: Unit = "row", where: SignalLike | None = None) -> Signal:
    """Signal: mean of x over the rows that agree in the columns `over`, on each of these rows.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"group": [0, 0, 1], "reward": [1.0, 3.0, 5.0]})
    >>> mean("reward", over="group").evaluate(turns)
    array([2., 2., 5.])
    """
    return _statistic("mean", x, over, unit, where)


@register()
def total(x: SignalLike, *, over: Keys, unit: Unit = "row", where: SignalLike | None = None) -> Signal:
    """Signal: sum of x over the rows that agree in `over`, on each of these rows; missing if none was scored."""
    return _statistic("total", x, over, unit, where)


@register()
def count(x: SignalLike = 1.0, *, over: Keys, unit: Unit = "row", where: SignalLike | None = None) -> Signal:
    """Signal: number of rows that agree in `over` and have x (missing ones do not count), on each row of the key."""
    return _statistic("count", x, over, unit, where)


@register()
def std(x: SignalLike, *, over: Keys, unit: Unit = "row", where: SignalLike | None = None, ddof: int = 1) -> Signal:
    """Signal: standard deviation of x over the rows that agree in `over`, by n - ddof; 0 for n <= ddof or constants."""
    return _statistic("std", x, over, unit, where, ddof=ddof)


@register("lowest", "min")
def lowest(x: SignalLike, *, over: Keys, unit: Unit = "row", where: SignalLike | None = None) -> Signal:
    """Signal: minimum of x over the rows that agree in `over`, on each of these rows (`min` in recipe text)."""
    return _statistic("lowest", x, over, unit, where)


@register("highest", "max")
def highest(x: SignalLike, *, over: Keys, unit: Unit = "row", where: SignalLike | None = None) -> Signal:
    """Signal: maximum of x over the rows that agree in `over`, on each of these rows (`max` in recipe text)."""
    return _statistic("highest", x, over, unit, where)


@register()
def quantile(x: SignalLike, *, q: float, over: Keys, unit: Unit = "row", where: SignalLike | None = None) -> Signal:
    """Signal: q-quantile of x over the rows that agree in `over`, linear between order statistics."""
    if not 0 <= q <= 1:
        raise ExpressionError(f"quantile: q={q} is outside [0, 1]")
    return _statistic("quantile", x, over, unit, where, q=float(q))


@register()
def rank(
    x: SignalLike,
    *,
    over: Keys,
    ties: Ties = "average",
    where: SignalLike | None = None,
) -> Signal:
    """Signal: rank of x, 1 the smallest, among the rows that agree in `over`; rows outside `where` have none.

    Ties as in scipy.stats.rankdata.
    """
    _choice("rank", "ties", ties, Ties)
    return Signal("rank", as_signal(x), over=_keys(over), where=None if where is None else as_signal(where), ties=ties)


@register()
def standardise(
    x: SignalLike,
    *,
    over: Keys,
    unit: Unit = "row",
    where: SignalLike | None = None,
    ddof: int = 1,
    eps: float = 1e-6,
    singleton: Singleton = "zero",
) -> Signal:
    """Signal (x - mean) / (std + eps) over the rows that agree in `over` (0 for a lone one by default).

    A lone sample with singleton="raw" gives x / (1 + eps): mean 0 and std 1.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"group": [0, 0, 0, 0], "reward": [1.0, 0.0, 0.0, 0.0]})
    >>> standardise("reward", over="group", eps=0).evaluate(turns)
    array([ 1.5, -0.5, -0.5, -0.5])
    """
    return _statistic("standardise", x, over, unit, where, ddof=ddof, eps=eps, singleton=singleton)


@register()
def centre(
    x: SignalLike, *, over: Keys, unit: Unit = "row", where: SignalLike | None = None, singleton: Singleton = "zero"
) -> Signal:
    """Signal x minus the mean of x over the rows that agree in the columns `over`."""
    return _statistic("centre", x, over, unit, where, singleton=singleton)


@register()
def leave_one_out(
    x: SignalLike, *, over: Keys, unit: Unit = "row", where: SignalLike | None = None, singleton: Singleton = "zero"
) -> Signal:
    """Signal: x - mean of the *other* samples of the rows that agree in `over` = n/(n-1) · (x - mean).

    Rows outside `where` have all samples as others.
    """
    return _statistic("leave_one_out", x, over, unit, where, singleton=singleton)


# -- along an episode -------------------------------------------------------------------------------------------------


@register()
def shift(
    x: SignalLike,
    *,
    n: int = 1,
    over: Keys = ("episode", "agent"),
    fill: float | None = None,
    where: SignalLike | None = None,
) -> Signal:
    """Signal: x n turns ago (n < 0: ahead) of the same agent; with over="episode" the mean over all who acted then.

    fill: what stands beyond the ends; missing if left out. where: mask; turns (or tokens) outside of it are passed
    over: they are nobody's neighbours and their own value is missing.
    """
    beyond = None if fill is None else float(fill)
    return Signal("shift", as_signal(x), n=operator.index(n), over=_keys(over), fill=beyond, **_among(where))


@register()
def cumulative(
    x: SignalLike,
    *,
    gamma: float = 1.0,
    reverse: bool = False,
    exclusive: bool = False,
    over: Keys = ("episode", "agent"),
    where: SignalLike | None = None,
) -> Signal:
    """Signal: discounted running sum in the order of play, y_t = x_t + γ·y_{t-1}, or x_t + γ·y_{t+1} if `reverse`.

    x_t is the sum over the rows of the key in turn t: with over="episode" agents that act at once share it.

    exclusive: y_t leaves out x_t itself (it is γ times the neighbour's inclusive sum, 0 at the end). Missing values add
    nothing, and a sum over nothing but missing values is missing. where: mask; the sum passes over turns (or tokens)
    outside of it, without a discount, and is missing there.
    """
    options: dict[str, Any] = {"gamma": float(gamma), "reverse": bool(reverse), "exclusive": bool(exclusive)}
    return Signal("cumulative", as_signal(x), **options, over=_keys(over), **_among(where))


def _among(where: SignalLike | None) -> dict[str, Any]:
    """The option `where` of a node, if it has one."""
    return {} if where is None else {"where": as_signal(where)}
