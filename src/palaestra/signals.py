"""`Signal`: a composable column expression over `Turns`.

A signal is an immutable tree. Evaluating it on a table gives one float64 per turn, or one per token (`Ragged`), or a
boolean mask; a missing value is NaN inside and null in the table. Rewards, credit and metrics are all signals.

Why not plain polars expressions: a statistic of a statistic must first finish the inner one. A nested polars window
evaluates the inner window inside the outer one's rows, which silently changes the meaning. Here every node is
evaluated once, on the whole table, before its parents (`kernels`). Statistics run over cached integer codes in NumPy: the
result does not depend on the number of threads, to the bit.

How statistics count (`unit`): `row` = every value is a sample (a turn, or a token of a per-token signal), `episode` =
each episode counts once, with its mean over its rows in that key; `unique` = each distinct value counts once.
`where` removes rows from the statistic and its count, not from the result. `singleton` is what a key with one sample
yields: `zero`, or `raw` (the value passes through). A key without variance yields exactly 0.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, ParamSpec

import numpy as np
import polars as pl

from palaestra.errors import ExpressionError
from palaestra.turns import Ragged, Turns

Value = np.ndarray | Ragged
Unit = Literal["row", "episode", "unique"]
Singleton = Literal["zero", "raw"]
P = ParamSpec("P")


class Signal:
    """A node: `op` names its kernel, `inputs` are signals, `options` are plain values. Build it with functions and operators.

    `str(signal)` is text that `parse` reads back (but for `pl.Expr` leaves). Signals with equal text are evaluated once.

    >>> 0.5 * col("reward") + 1
    0.5 * col('reward') + 1.0
    """

    __slots__ = ("inputs", "label", "op", "options", "text")

    def __init__(self, op: str, *inputs: Signal, label: str | None = None, **options: Any) -> None:
        self.op = op
        self.inputs = inputs
        self.options = options
        self.label = label
        self.text = _text(self)

    def __repr__(self) -> str:
        return self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __bool__(self) -> bool:
        raise ExpressionError(f"{self} has no truth value on its own; use & | ~ and where(), not 'and', 'or', 'not', 'if'")

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
        """Columns that the table must have for the leaves (keys of statistics not included)."""
        own = {self.options["name"]} if self.op == "col" else set()
        if self.op == "expr":
            own = set(self.options["expr"].meta.root_names())
        return own.union(*(child.needs() for child in self.inputs))

    def __add__(self, other: SignalLike) -> Signal:
        return Signal("add", self, as_signal(other))

    def __radd__(self, other: SignalLike) -> Signal:
        return Signal("add", as_signal(other), self)

    def __sub__(self, other: SignalLike) -> Signal:
        return Signal("sub", self, as_signal(other))

    def __rsub__(self, other: SignalLike) -> Signal:
        return Signal("sub", as_signal(other), self)

    def __mul__(self, other: SignalLike) -> Signal:
        return Signal("mul", self, as_signal(other))

    def __rmul__(self, other: SignalLike) -> Signal:
        return Signal("mul", as_signal(other), self)

    def __truediv__(self, other: SignalLike) -> Signal:
        return Signal("div", self, as_signal(other))

    def __rtruediv__(self, other: SignalLike) -> Signal:
        return Signal("div", as_signal(other), self)

    def __pow__(self, other: SignalLike) -> Signal:
        return Signal("pow", self, as_signal(other))

    def __neg__(self) -> Signal:
        return Signal("neg", self)

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
Keys = str | Signal | tuple[str | Signal, ...]

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**", "and": "&", "or": "|",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip


def _text(node: Signal, show: Callable[[Signal], str] = str) -> str:
    def inner(child: Signal) -> str:
        text = show(child)
        return f"({text})" if (child.op in _INFIX or child.op == "neg") and text != child.label else text

    if node.op == "lit":
        return repr(node.options["value"])
    if node.op == "col":
        return f"col({node.options['name']!r})"
    if node.op == "expr":
        return f"expr[{node.options['expr']}]"
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
    return Signal("col", name=name)


def lit(value: float) -> Signal:
    """A constant."""
    return Signal("lit", value=value if isinstance(value, bool) else float(value))


def as_signal(value: object) -> Signal:
    """A signal from what people write: a column name, a number, a polars expression, or a signal.

    Raises:
        ExpressionError: the expression has a window (`.over`), whose nesting would change its meaning.
    """
    if isinstance(value, Signal):
        return value
    if isinstance(value, str):
        return col(value)
    if isinstance(value, pl.Expr):
        if '"Over"' in value.meta.serialize(format="json") or '"Window"' in value.meta.serialize(format="json"):
            raise ExpressionError(f"{value}: a polars window cannot be a leaf; use mean(), total() … with over=")
        return Signal("expr", expr=value)
    if isinstance(value, int | float | bool | np.number):
        return lit(float(value) if not isinstance(value, bool) else value)
    raise ExpressionError(f"{value!r} is not a signal: give a column name, a number, a polars expression or a Signal")


def _keys(over: Keys) -> tuple[str | Signal, ...]:
    return over if isinstance(over, tuple) else (over,)


# -- row by row -------------------------------------------------------------------------------------------------------


@register()
def where(condition: SignalLike, then: SignalLike, otherwise: SignalLike) -> Signal:
    """`then` on rows where the condition holds, else `otherwise`. A missing condition gives a missing value."""
    return Signal("where", as_signal(condition), as_signal(then), as_signal(otherwise))


@register()
def clip(x: SignalLike, low: float | None = None, high: float | None = None) -> Signal:
    """x limited to [low, high]; either end may be open."""
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
def per_turn(x: SignalLike, how: Literal["mean", "total", "highest", "lowest"] = "mean") -> Signal:
    """One value per turn from one per token: their mean, total, maximum or minimum; missing for a turn without tokens."""
    return Signal("per_turn", as_signal(x), how=how)


@register()
def per_token(x: SignalLike, like: SignalLike = "logprobs") -> Signal:
    """Repeat each turn's value on its tokens; `like` tells how many there are."""
    return Signal("per_token", as_signal(x), as_signal(like))


# -- statistics over keys ---------------------------------------------------------------------------------------------


def _statistic(op: str, x: SignalLike, over: Keys, unit: Unit, where: SignalLike | None, **options: Any) -> Signal:
    if unit not in ("row", "episode", "unique"):
        raise ExpressionError(f"{op}: unit={unit!r} is not one of 'row', 'episode', 'unique'")
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
    ties: Literal["average", "min", "max", "dense", "ordinal"] = "average",
    where: SignalLike | None = None,
) -> Signal:
    """Rank of x in its key from 1 (smallest); rows outside `where` have none. Ties as in scipy.stats.rankdata."""
    return _statistic("rank", x, over, "row", where, ties=ties)


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
    """(x - mean) / (std + eps) over each key.

    >>> turns = Turns({"group": [0, 0, 0, 0], "reward": [1.0, 0.0, 0.0, 0.0]})
    >>> standardise("reward", over="group", eps=0).evaluate(turns)
    array([ 1.5, -0.5, -0.5, -0.5])
    """
    return _statistic("standardise", x, over, unit, where, ddof=ddof, eps=float(eps), singleton=singleton)


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
    """x - mean of the *other* samples of the key = n/(n-1) · (x - mean). Rows outside `where` have all samples as others."""
    return _statistic("leave_one_out", x, over, unit, where, singleton=singleton)


# -- along an episode -------------------------------------------------------------------------------------------------


@register()
def shift(x: SignalLike, n: int = 1, *, over: Keys = ("episode", "agent"), fill: float | None = None) -> Signal:
    """The value n turns ago (n < 0: ahead) of the same agent, or of anyone with over="episode"; `fill` beyond the ends."""
    return Signal("shift", as_signal(x), n=int(n), over=_keys(over), fill=fill)


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

    exclusive: y_t leaves out x_t itself (it is γ times the neighbour's inclusive sum). Missing values add nothing.
    """
    return Signal(
        "cumulative", as_signal(x), gamma=float(gamma), reverse=reverse, exclusive=exclusive, over=_keys(over)
    )


# -- evaluation and trees ---------------------------------------------------------------------------------------------


def evaluate(turns: Turns, *signals: Signal) -> list[Value]:
    """Values of several signals on one table; what they have in common is evaluated once."""
    from palaestra.kernels import Evaluation  # kernels know the tree; the tree knows them only when it is run

    evaluation = Evaluation(turns)
    return [evaluation(signal) for signal in signals]


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
