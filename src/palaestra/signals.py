"""`Signal`: a composable column expression over `Turns`.

A signal is an immutable tree. Evaluating it on a table gives one float64 per turn, or one per token (`Ragged`), or a
boolean mask; a missing value is NaN inside and null in the table. Rewards, credit and metrics are all signals.

Why not plain polars expressions: a statistic of a statistic must first finish the inner one. A nested polars window
evaluates the inner window inside the outer one's rows, which silently changes the meaning. Here every node is
evaluated once, on the whole table, before its parents (`kernels`). Statistics run over cached integer codes in NumPy:
the result does not depend on the number of threads, to the bit.

How statistics count (`unit`): `row` = every value is a sample (a turn, or a token of a per-token signal), `episode` =
each episode counts once, with its mean over its rows in that key; `unique` = each distinct value counts once (distinct
as float32, so that the order of a sum does not matter). `where` removes rows from the statistic and its count, not from
the result. `singleton` is what a key with one sample yields: `zero`, or `raw` (the value passes through). A key without
variance yields exactly 0.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import operator
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, ParamSpec, get_args

import numpy as np
import polars as pl

from palaestra.errors import ExpressionError, MissingColumnError, nearest
from palaestra.turns import Ragged, Turns

Value = np.ndarray | Ragged
Unit = Literal["row", "episode", "unique"]
Singleton = Literal["zero", "raw"]
Summary = Literal["mean", "total", "highest", "lowest"]
Ties = Literal["average", "min", "max", "dense", "ordinal"]
P = ParamSpec("P")


class Signal:
    """A node: `op` names its kernel, `inputs` are signals, `options` are plain values.

    Build it with functions and operators. `str(signal)` is text that `parse` reads back (but for `pl.Expr` leaves).
    Signals with equal text are evaluated once.

    >>> 0.5 * col("reward") + 1
    0.5 * col('reward') + 1.0
    """

    __slots__ = ("inputs", "label", "op", "options", "text")

    def __init__(self, op: str, *inputs: Signal, label: str | None = None, **options: Any) -> None:
        self.op = op
        self.inputs = inputs
        self.options = {key: value.item() if isinstance(value, np.generic) else value for key, value in options.items()}
        for key, value in self.options.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ExpressionError(f"{op}: {key}={value} is not finite")
        self.label = label
        self.text = _text(self)

    def __repr__(self) -> str:
        return self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __bool__(self) -> bool:
        raise ExpressionError(f"{self} has no truth value; use & | ~ and where(), not 'and', 'or', 'not', 'if'")

    def evaluate(self, turns: Turns) -> Value:
        """One float64 (or bool) per turn, or `Ragged`; NaN = missing.

        Raises:
            MissingColumnError: the table lacks a column that the signal needs.
            ExpressionError: a division by zero, or per-token values of different lengths.
            RewardError: a column holds NaN or infinity.
        """
        return evaluate(turns, self)[0]

    def explain(self, turns: Turns | None = None) -> str:
        """The tree, one node a line; with a table also, per statistic, key, samples per key and share of zeros."""
        from palaestra.explain import explain

        return explain(self, turns)

    def contributions(self, turns: Turns) -> dict[str, float]:
        """Share of each additive term: its mean absolute value over the sum of theirs."""
        from palaestra.explain import contributions

        return contributions(self, turns)

    def needs(self) -> set[str]:
        """Columns that the table must have, keys included."""
        own = {key for key in self.options.get("over") or () if isinstance(key, str) and key != "row"}
        if self.options.get("unit") == "episode":
            own.add("episode")
        if self.op in ("col", "is_in"):
            own.add(self.options["name"])
        if self.op == "expr":
            own.update(self.options["expr"].meta.root_names())
        return own.union(*(child.needs() for child in children(self)))

    def __add__(self, other: SignalLike) -> Signal:
        return _arithmetic("add", self, other)

    def __radd__(self, other: SignalLike) -> Signal:
        return _arithmetic("add", other, self)

    def __sub__(self, other: SignalLike) -> Signal:
        return _arithmetic("sub", self, other)

    def __rsub__(self, other: SignalLike) -> Signal:
        return _arithmetic("sub", other, self)

    def __mul__(self, other: SignalLike) -> Signal:
        return _arithmetic("mul", self, other)

    def __rmul__(self, other: SignalLike) -> Signal:
        return _arithmetic("mul", other, self)

    def __truediv__(self, other: SignalLike) -> Signal:
        return _arithmetic("div", self, other)

    def __rtruediv__(self, other: SignalLike) -> Signal:
        return _arithmetic("div", other, self)

    def __pow__(self, other: SignalLike) -> Signal:
        return _arithmetic("pow", self, other)

    def __rpow__(self, other: SignalLike) -> Signal:
        return _arithmetic("pow", other, self)

    def __neg__(self) -> Signal:
        if self.op == "neg":
            return self.inputs[0]
        return lit(-self.options["value"]) if self.op == "lit" else Signal("neg", self)

    def __and__(self, other: SignalLike) -> Signal:
        return Signal("and", self, as_signal(other))

    def __or__(self, other: SignalLike) -> Signal:
        return Signal("or", self, as_signal(other))

    def __invert__(self) -> Signal:
        return Signal("not", self)

    def __lt__(self, other: SignalLike) -> Signal:
        return Signal("lt", self, as_signal(other))

    def __le__(self, other: SignalLike) -> Signal:
        return Signal("le", self, as_signal(other))

    def __gt__(self, other: SignalLike) -> Signal:
        return Signal("gt", self, as_signal(other))

    def __ge__(self, other: SignalLike) -> Signal:
        return Signal("ge", self, as_signal(other))

    def __eq__(self, other: object) -> Signal:  # type: ignore[override]
        return Signal("eq", self, as_signal(other))

    def __ne__(self, other: object) -> Signal:  # type: ignore[override]
        return Signal("ne", self, as_signal(other))


SignalLike = Signal | pl.Expr | str | float | int | bool
Keys = str | Signal | pl.Expr | Sequence[str | Signal | pl.Expr]

_FOLD = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "pow": operator.pow}


def _arithmetic(op: str, left: SignalLike, right: SignalLike) -> Signal:
    """Two constants are computed at once, as they are when their text is parsed."""
    a, b = as_signal(left), as_signal(right)
    if a.op == b.op == "lit":
        try:
            value = _FOLD[op](float(a.options["value"]), float(b.options["value"]))
            return lit(value)
        except (ArithmeticError, TypeError) as error:
            raise ExpressionError(f"{a} {_INFIX[op]} {b}: {error}") from error
    return Signal(op, a, b)


_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**", "and": "&", "or": "|",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip


def _text(node: Signal, show: Callable[[Signal], str] = str) -> str:
    def inner(child: Signal) -> str:
        text = show(child)
        signed = child.op == "neg" or (node.op == "pow" and text[0] in "-~")  # ** binds tighter than a sign
        return f"({text})" if (child.op in _INFIX or signed) and text != child.label else text

    if node.op == "lit":
        return repr(node.options["value"])
    if node.op == "col":
        return f"col({node.options['name']!r})"
    if node.op == "expr":
        return f"expr[{node.options['expr']} #{node.options['digest']}]"
    if node.op in _INFIX:
        left, right = node.inputs
        loose = ("add", "mul") if node.op == "add" else ()  # a + b * c needs no parentheses
        first = show(left) if left.op in loose else inner(left)
        second = show(right) if right.op in loose[1:] else inner(right)
        return f"{first} {_INFIX[node.op]} {second}"
    if node.op in ("neg", "not"):
        return ("-" if node.op == "neg" else "~") + inner(node.inputs[0])
    options = [f"{name}={_option(value)}" for name, value in node.options.items() if value is not None]
    return f"{node.op}({', '.join([show(child) for child in node.inputs] + options)})"


def short(node: Signal) -> str:
    """The text of a signal with named methods left unexpanded: `0.5 * grpo()`."""
    return node.label or _text(node, short)


def _option(value: Any) -> str:
    if isinstance(value, tuple):
        return "(" + ", ".join(_option(v) for v in value) + ("," if len(value) == 1 else "") + ")"
    return str(value) if isinstance(value, Signal) else repr(value)


# -- registry ---------------------------------------------------------------------------------------------------------

REGISTRY: dict[str, Callable[..., Signal]] = {}
"""Names that recipe text may use."""


def register(*names: str) -> Callable[[Callable[P, Signal]], Callable[P, Signal]]:
    """Make a function that returns a signal usable in recipe text, under its own name or the given ones.

    A user's own signals are added in the same way.
    """

    def decorate(function: Callable[P, Signal]) -> Callable[P, Signal]:
        name = names[0] if names else function.__name__

        @functools.wraps(function)
        def labelled(*args: P.args, **kwargs: P.kwargs) -> Signal:
            signal = function(*args, **kwargs)
            if signal.op == name or signal.op in ("col", "lit"):
                return signal
            given = [str(a) if isinstance(a, Signal) else repr(a) for a in args]
            given += [f"{k}={_option(v)}" for k, v in kwargs.items()]
            return Signal(signal.op, *signal.inputs, label=f"{name}({', '.join(given)})", **signal.options)

        for each in names or (name,):
            REGISTRY[each] = labelled
        return labelled

    return decorate


# -- leaves -----------------------------------------------------------------------------------------------------------


@register()
def col(name: str) -> Signal:
    """A column of the table: numbers, booleans, or lists of numbers (per token)."""
    if not isinstance(name, str):
        raise ExpressionError(f"col({name!r}): the name of a column is text")
    return Signal("col", name=name)


@register()
def is_in(name: str, values: str | Sequence[str]) -> Signal:
    """Mask of the rows where a column of text holds one of these: is_in("agent", "solver"); missing where it is."""
    given = (values,) if isinstance(values, str) else tuple(values)
    if not isinstance(name, str) or not all(isinstance(value, str) for value in given):
        raise ExpressionError(f"is_in({name!r}, {values!r}): give the name of a column and texts")
    return Signal("is_in", name=name, values=given)


def lit(value: float) -> Signal:
    """A constant. A missing value is what `where(condition, then)` gives where the condition does not hold."""
    return Signal("lit", value=bool(value) if isinstance(value, bool | np.bool_) else float(value))


def as_signal(value: object) -> Signal:
    """A signal from what people write: a column name, a number, a polars expression, or a signal.

    Raises:
        ExpressionError: the expression looks beyond its own row (a window, an aggregate, a shift …), which would
            change its meaning inside another statistic and mix episodes and runs.
    """
    if isinstance(value, Signal):
        return value
    if isinstance(value, str):
        return col(value)
    if isinstance(value, pl.Expr):
        return _expression(value)
    if isinstance(value, int | float | np.number | np.bool_):
        try:
            return lit(value)  # type: ignore[arg-type]
        except OverflowError as error:
            raise ExpressionError(f"a constant is too large: {error}") from error
    raise ExpressionError(f"{value!r} is not a signal: give a column name, a number, a polars expression or a Signal")


_ACROSS_ROWS = {
    "Agg", "CumCount", "CumMax", "CumMin", "CumProd", "CumSum", "Diff", "EwmMean", "EwmMeanBy", "EwmStd", "EwmVar",
    "Explode", "FillNullWithStrategy", "Filter", "Gather", "Interpolate", "InterpolateBy", "IsDuplicated",
    "IsFirstDistinct", "IsLastDistinct", "IsUnique", "Len", "Mode", "Over", "PctChange", "QCut", "Quantile", "RLEID",
    "Random", "Rank", "Reverse", "Rolling", "RollingExpr", "RollingExprBy", "Shift", "Slice", "Sort", "SortBy",
    "Window",
}  # fmt: skip
_WITHIN_ROWS = {"ArrayExpr", "Column", "ListExpr", "Literal", "StringExpr", "StructExpr", "TemporalExpr", "evaluation"}


def _expression(expr: pl.Expr) -> Signal:
    try:
        tree = expr.meta.serialize(format="json")
    except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
        raise ExpressionError(f"{expr}: polars cannot say what it does ({error}); use with_column() instead") from error
    across = sorted(_ACROSS_ROWS.intersection(_polars_names(json.loads(tree))))
    if across or expr.meta.has_multiple_outputs():
        why = f"looks across rows ({', '.join(across)})" if across else "stands for several columns"
        raise ExpressionError(
            f"{expr}: a polars window or aggregate cannot be a leaf, and this one {why}; "
            "use mean(), total(), shift(), cumulative() … with over="
        )
    return Signal("expr", expr=expr, digest=f"{zlib.crc32(tree.encode()):08x}")  # what polars prints is not the whole


def _polars_names(node: Any) -> Iterator[str]:
    """Names of nodes and functions in a serialised expression, without what stays inside one value."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, list):
        for child in node:
            yield from _polars_names(child)
    elif isinstance(node, dict):
        for name, child in node.items():
            yield name
            if name == "Alias":
                yield from _polars_names(child[0])
            elif name not in _WITHIN_ROWS:
                yield from _polars_names(child)


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
    """`then` on rows where the condition holds, `otherwise` on the others; missing where the condition is missing.

    Without `otherwise` the others are missing too: they take no part in statistics and are not trained on.
    """
    branches = [then] if otherwise is None else [then, otherwise]
    return Signal("where", as_signal(condition), *map(as_signal, branches))


@register()
def clip(x: SignalLike, low: float | None = None, high: float | None = None) -> Signal:
    """x limited to [low, high]; either end may be open."""
    low, high = (None if end is None else float(end) for end in (low, high))
    return Signal("clip", as_signal(x), low=low, high=high)


@register()
def exp(x: SignalLike) -> Signal:
    """e to the x."""
    return Signal("exp", as_signal(x))


@register()
def log(x: SignalLike) -> Signal:
    """Natural logarithm; not finite at 0 and below, which is an error."""
    return Signal("log", as_signal(x))


@register()
def absolute(x: SignalLike) -> Signal:
    """|x|."""
    return Signal("absolute", as_signal(x))


@register()
def sign(x: SignalLike) -> Signal:
    """-1, 0 or 1."""
    return Signal("sign", as_signal(x))


@register()
def is_missing(x: SignalLike) -> Signal:
    """Mask of the rows where x is missing."""
    return Signal("is_missing", as_signal(x))


@register()
def fill_missing(x: SignalLike, value: SignalLike) -> Signal:
    """x, and `value` where x is missing. Not scored is not zero, so zeros have to be asked for."""
    return Signal("fill_missing", as_signal(x), as_signal(value))


@register()
def ratio(top: SignalLike, bottom: SignalLike, otherwise: SignalLike = 0.0) -> Signal:
    """top / bottom, and `otherwise` on rows where bottom is 0."""
    return Signal("ratio", as_signal(top), as_signal(bottom), as_signal(otherwise))


@register()
def per_turn(x: SignalLike, how: Summary = "mean") -> Signal:
    """One value per turn from one per token: mean, total, highest or lowest; missing for a turn without tokens."""
    _choice("per_turn", "how", how, Summary)
    return Signal("per_turn", as_signal(x), how=how)


@register()
def per_token(x: SignalLike, like: SignalLike = "logprobs") -> Signal:
    """Repeat each turn's value on its tokens; `like` tells how many there are."""
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
    mask = None if where is None else as_signal(where)
    return Signal(op, as_signal(x), over=_keys(over), unit=unit, where=mask, **options)


@register()
def mean(x: SignalLike, *, over: Keys, unit: Unit = "row", where: SignalLike | None = None) -> Signal:
    """Mean of x over each key, on every row of the key.

    >>> turns = Turns({"group": [0, 0, 1], "reward": [1.0, 3.0, 5.0]})
    >>> mean("reward", over="group").evaluate(turns)
    array([2., 2., 5.])
    """
    return _statistic("mean", x, over, unit, where)


@register()
def total(x: SignalLike, *, over: Keys, unit: Unit = "row", where: SignalLike | None = None) -> Signal:
    """Sum of x over each key; missing if nothing in the key was scored."""
    return _statistic("total", x, over, unit, where)


@register()
def count(x: SignalLike = 1.0, *, over: Keys, unit: Unit = "row", where: SignalLike | None = None) -> Signal:
    """Number of samples of x (missing ones do not count) in each key."""
    return _statistic("count", x, over, unit, where)


@register()
def std(x: SignalLike, *, over: Keys, unit: Unit = "row", where: SignalLike | None = None, ddof: int = 1) -> Signal:
    """Standard deviation, two-pass, divided by n - ddof; 0 where n <= ddof or the key is constant."""
    return _statistic("std", x, over, unit, where, ddof=ddof)


@register("lowest", "min")
def lowest(x: SignalLike, *, over: Keys, unit: Unit = "row", where: SignalLike | None = None) -> Signal:
    """Minimum over each key (`min` in recipe text)."""
    return _statistic("lowest", x, over, unit, where)


@register("highest", "max")
def highest(x: SignalLike, *, over: Keys, unit: Unit = "row", where: SignalLike | None = None) -> Signal:
    """Maximum over each key (`max` in recipe text)."""
    return _statistic("highest", x, over, unit, where)


@register()
def quantile(x: SignalLike, q: float, *, over: Keys, unit: Unit = "row", where: SignalLike | None = None) -> Signal:
    """The q-quantile over each key, linear between order statistics."""
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
    """Rank of x in its key from 1 (smallest); rows outside `where` have none. Ties as in scipy.stats.rankdata."""
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
    """(x - mean) / (std + eps) over each key; a lone `raw` sample gives x / (1 + eps), as if mean and std were 0 and 1.

    >>> turns = Turns({"group": [0, 0, 0, 0], "reward": [1.0, 0.0, 0.0, 0.0]})
    >>> standardise("reward", over="group", eps=0).evaluate(turns)
    array([ 1.5, -0.5, -0.5, -0.5])
    """
    return _statistic("standardise", x, over, unit, where, ddof=ddof, eps=eps, singleton=singleton)


@register()
def centre(
    x: SignalLike, *, over: Keys, unit: Unit = "row", where: SignalLike | None = None, singleton: Singleton = "zero"
) -> Signal:
    """x - mean over each key."""
    return _statistic("centre", x, over, unit, where, singleton=singleton)


@register()
def leave_one_out(
    x: SignalLike, *, over: Keys, unit: Unit = "row", where: SignalLike | None = None, singleton: Singleton = "zero"
) -> Signal:
    """x - mean of the *other* samples of the key = n/(n-1) · (x - mean).

    Rows outside `where` have all samples as others.
    """
    return _statistic("leave_one_out", x, over, unit, where, singleton=singleton)


# -- along an episode -------------------------------------------------------------------------------------------------


@register()
def shift(x: SignalLike, n: int = 1, *, over: Keys = ("episode", "agent"), fill: float | None = None) -> Signal:
    """The value n turns ago (n < 0: ahead) of the same agent, or of anyone with over="episode".

    fill: what stands beyond the ends; missing if left out.
    """
    beyond = None if fill is None else float(fill)
    return Signal("shift", as_signal(x), n=operator.index(n), over=_keys(over), fill=beyond)


@register()
def cumulative(
    x: SignalLike,
    *,
    gamma: float = 1.0,
    reverse: bool = False,
    exclusive: bool = False,
    over: Keys = ("episode", "agent"),
) -> Signal:
    """Discounted running sum in the order of play: y_t = x_t + γ·y_{t-1}, or y_t = x_t + γ·y_{t+1} if `reverse`.

    exclusive: y_t leaves out x_t itself (it is γ times the neighbour's inclusive sum, 0 at the end). Missing values add
    nothing, and a sum over nothing but missing values is missing.
    """
    options: dict[str, Any] = {"gamma": float(gamma), "reverse": bool(reverse), "exclusive": bool(exclusive)}
    return Signal("cumulative", as_signal(x), **options, over=_keys(over))


# -- evaluation and trees ---------------------------------------------------------------------------------------------


def evaluate(turns: Turns, *signals: Signal) -> list[Value]:
    """Values of several signals on one table; what they have in common is evaluated once."""
    from palaestra.kernels import Evaluation  # kernels know the tree; the tree knows them only when it is run

    evaluation = Evaluation(turns)
    values = []
    for signal in signals:
        try:
            values.append(evaluation(signal))
        except MissingColumnError as error:
            raise MissingColumnError(f"{short(signal)}: {error}") from error
        except RecursionError as error:
            raise ExpressionError("expression is nested too deeply; put parts of it into columns first") from error
    return values


def walk(signal: Signal) -> Iterator[Signal]:
    """Every node of the tree, parents first, masks and computed keys included."""
    yield signal
    for child in children(signal):
        yield from walk(child)


def children(signal: Signal) -> Iterable[Signal]:
    """A node's inputs, then the signals among its options (`where=`, computed keys)."""
    over = signal.options.get("over") or ()
    extra = [signal.options.get("where"), *over]
    return [*signal.inputs, *(value for value in extra if isinstance(value, Signal))]


def signature(name: str) -> str:
    """`name(parameters)` of a registered function, for messages."""
    return f"{name}{inspect.signature(REGISTRY[name])}".replace("'", "")
