"""The node of the algebra: `Signal`, its leaves, and the registry of names.

A signal is an immutable tree. Evaluating it on a table gives one float64 per turn, or one per token (`Ragged`), or a
boolean mask; a missing value is NaN inside and null in the table. The words of the algebra are in `signals`.

Why not plain polars expressions: a statistic of a statistic must first finish the inner one. A nested polars window
evaluates the inner window inside the outer one's rows, which silently changes the meaning. Here every node is
evaluated once, on the whole table, before its parents (`kernels`). Statistics run over cached integer codes in NumPy:
the result does not depend on the number of threads, to the bit.
"""

from __future__ import annotations

import functools
import hashlib
import html
import inspect
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ParamSpec

import numpy as np
import polars as pl

from palaestra.algebra.binding import BOUND
from palaestra.algebra.rowwise import rowwise
from palaestra.algebra.schema import SCHEMA
from palaestra.algebra.turns import Evaluable, Ragged, Turns
from palaestra.errors import ExpressionError
from palaestra.foundation.registry import Registry

Value = np.ndarray | Ragged
P = ParamSpec("P")
Made = tuple[str, tuple[Any, ...], dict[str, Any]]
"""The call by name that made a signal: name, arguments, options."""


class Signal(Evaluable):
    """Expression tree over a table of turns: a node with an operator `op`, `inputs` (signals) and `options` (values).

    Build it with functions and operators. `str(signal)` is text that `parse` reads back (but for `pl.Expr` leaves, and
    trees of more than `LARGEST` nodes). Signals of equal structure have equal digests and are evaluated once; parts
    that stand in a signal several times are one object, so nesting costs memory by depth, not by size of the text.

    >>> 0.5 * col("reward") + 1
    0.5 * col('reward') + 1.0
    """

    __slots__ = ("_label", "_text", "digest", "inputs", "op", "options", "size")

    def __init__(self, op: str, *inputs: Signal, label: str | Made | None = None, **options: Any) -> None:
        self.op = op
        self.inputs = inputs
        self.options = {key: value.item() if isinstance(value, np.generic) else value for key, value in options.items()}
        for key, value in self.options.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ExpressionError(f"{op}: {key}={value} is not finite")
        self._label, self._text = label, ""
        self.size: int = 1 + sum(child.size for child in children(self))
        self.digest = _digest(self)

    @property
    def text(self) -> str:
        """Text form of the signal, computed on first use."""
        if not self._text:
            self._text = BOUND["text"](self)
        return self._text

    @property
    def label(self) -> str | None:
        """Text of the call that made the signal, "grpo('score')"; None without a name."""
        if isinstance(self._label, tuple):
            self._label = str(BOUND["call"](*self._label))
        return self._label

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def __hash__(self) -> int:
        return hash(self.digest)

    def __bool__(self) -> bool:
        raise ExpressionError(f"{self} has no truth value; use & | ~ and where(), not 'and', 'or', 'not', 'if'")

    def evaluate(self, turns: Turns) -> Value:
        """Values of the signal on a table: one float64 (or bool) per turn, or `Ragged` per token; NaN = missing.

        Raises:
            MissingColumnError: the table lacks a column that the signal needs.
            ExpressionError: a division by zero, or per-token values of different lengths.
            RewardError: a column holds NaN or infinity.
        """
        value: Value = BOUND["evaluate"](turns, self)[0]
        return value

    def explain(self, turns: Turns | None = None) -> str:
        """Text tree of the signal, a node a line; with a table also keys, samples and share of zeros per statistic."""
        text: str = BOUND["explain"](self, turns)
        return text

    def contributions(self, turns: Turns) -> dict[str, float]:
        """Share of each additive term in the signal: its mean absolute value over the sum of theirs."""
        shares: dict[str, float] = BOUND["contributions"](self, turns)
        return shares

    def needs(self) -> set[str]:
        """Columns that the table must have, keys included."""
        found: set[str] = set()
        for node in walk(self):
            found.update(key for key in node.options.get("over") or () if isinstance(key, str) and key != "row")
            if node.options.get("unit") == "episode":
                found.add("episode")
            if node.op in ("col", "is_in"):
                found.add(node.options["name"])
            if node.op == "expr":
                found.update(node.options["expr"].meta.root_names())
        return found

    def partition(self) -> tuple[str, ...]:
        """Columns whose values must stay together so that parts of a table give what the whole gives; see `partition`.

        ("run", "iteration", "group"), ("run", "iteration"), or ("row",) if rows can be taken one by one.
        """
        columns: tuple[str, ...] = BOUND["partition"](self)
        return columns

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


def _digest(node: Signal) -> bytes:
    """16 bytes that tell structures apart; made of those of the parts, so that a node costs the same at any depth."""
    mark = hashlib.blake2b(node.op.encode(), digest_size=16)
    for child in node.inputs:
        mark.update(child.digest)
    for name, value in node.options.items():
        mark.update(f"|{name}={_plain(value)}".encode())
    return mark.digest()


def _plain(value: Any) -> str:
    if isinstance(value, tuple):
        return "(" + ",".join(map(_plain, value)) + ")"
    if isinstance(value, Signal):
        return value.digest.hex()
    return str(value) if isinstance(value, pl.Expr) else repr(value)


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
            raise ExpressionError(f"{Signal(op, a, b)}: {error}") from error
    return Signal(op, a, b)


# -- registry ---------------------------------------------------------------------------------------------------------

REGISTRY: Registry[Signal] = Registry(
    "signal",
    home=("palaestra.credit", "palaestra.rewards", "palaestra.judges.programs"),
    reserved=SCHEMA,
    why="that of a column",
    example="grpo()",
)
"""Names that recipe text may use."""


def register(*names: str) -> Callable[[Callable[P, Signal]], Callable[P, Signal]]:
    """Decorator that makes a function which returns a signal a word of recipe text, under its own or the given names.

    A user's own signals are added in the same way.
    """

    def decorate(function: Callable[P, Signal]) -> Callable[P, Signal]:
        name = names[0] if names else function.__name__

        @functools.wraps(function)
        def labelled(*args: P.args, **kwargs: P.kwargs) -> Signal:
            try:
                signal = function(*args, **kwargs)
            except TypeError as error:
                wrong = _misfit(function, args, kwargs)
                if wrong is None:
                    raise
                raise ExpressionError(f"{name}: {wrong}; it is {REGISTRY.signature(name)}") from error
            if signal.op == name or signal.op in ("col", "lit"):
                return signal
            return Signal(signal.op, *signal.inputs, label=(name, args, kwargs), **signal.options)

        for each in names or (name,):
            REGISTRY.add(each, labelled)
        return labelled

    return decorate


def _misfit(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> str | None:
    try:
        inspect.signature(function).bind(*args, **options)
    except TypeError as error:
        return str(error)
    return None


# -- leaves -----------------------------------------------------------------------------------------------------------


@register()
def col(name: str) -> Signal:
    """Signal of a column of the table: numbers, booleans, or lists of numbers (per token)."""
    if not isinstance(name, str):
        raise ExpressionError(f"col({name!r}): the name of a column is text")
    return Signal("col", name=name)


@register()
def is_in(name: str, values: str | Sequence[str]) -> Signal:
    """Signal: mask of the rows where a column of text holds one of these values; missing where the column is."""
    given = (values,) if isinstance(values, str) else tuple(values)
    if not isinstance(name, str) or not all(isinstance(value, str) for value in given):
        raise ExpressionError(f"is_in({name!r}, {values!r}): give the name of a column and texts")
    return Signal("is_in", name=name, values=given)


def lit(value: float | np.number | np.bool_) -> Signal:
    """Signal of one constant value.

    A missing value is what `where(condition, then)` gives where it does not hold.
    """
    return Signal("lit", value=bool(value) if isinstance(value, bool | np.bool_) else float(value))


def as_signal(value: object) -> Signal:
    """Convert a column name, a number, a polars expression or a signal to a `Signal`.

    Raises:
        ExpressionError: the expression looks beyond its own row (a window, an aggregate, a shift …), which would
            change its meaning inside another statistic and mix episodes and runs.
    """
    if isinstance(value, Signal):
        return value
    if isinstance(value, str):
        return col(value)
    if isinstance(value, pl.Expr):
        return Signal("expr", expr=value, digest=rowwise(value))
    if isinstance(value, int | float | np.number | np.bool_):
        try:
            return lit(value)
        except OverflowError as error:
            raise ExpressionError(f"a constant is too large: {error}") from error
    raise ExpressionError(f"{value!r} is not a signal: give a column name, a number, a polars expression or a Signal")


# -- trees -----------------------------------------------------------------------------------------------------------


def walk(signal: Signal) -> Iterator[Signal]:
    """Generator of every node of a `Signal` once, parents first, masks and computed keys included."""
    waiting, seen = [signal], set()
    while waiting:
        node = waiting.pop()
        if node.digest not in seen:
            seen.add(node.digest)
            yield node
            waiting.extend(reversed([*children(node)]))


def children(signal: Signal) -> Iterable[Signal]:
    """List of a `Signal` node's inputs, then the signals among its options (`where=`, computed keys)."""
    over = signal.options.get("over") or ()
    extra = [signal.options.get("where"), *over]
    return [*signal.inputs, *(value for value in extra if isinstance(value, Signal))]
