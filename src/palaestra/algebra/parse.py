"""Signals from recipe text: Python's own grammar, cut down to arithmetic, comparisons, literals and registered names.

Nothing is executed: the text becomes a syntax tree, and only the node types below are understood.
"""

from __future__ import annotations

import ast
import inspect
import operator
from collections.abc import Callable, Iterable
from typing import Any

from palaestra.algebra.signals import REGISTRY, Signal, as_signal, col
from palaestra.algebra.turns import SCHEMA
from palaestra.errors import ExpressionError, nearest

MAX_LENGTH = 20_000

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


def parse(text: str, *, columns: Iterable[str] = ()) -> Signal:
    """Parse a piece of recipe text, such as "0.5 * gae() + reward", into the `Signal` that it describes.

    A bare name is a registered signal (called without arguments), a column of the schema, or one of `columns`; any
    other column is `col("name")`. Strings are column names, or options such as unit="episode".

    Raises:
        ExpressionError: the text is not an expression, uses something else than the above, names something unknown
            (the message gives the nearest known names), or gives a function arguments that it does not take.

    >>> parse("0.5 * col('a') + clip(reward, low=-1, high=1)")
    0.5 * col('a') + clip(col('reward'), low=-1.0, high=1.0)
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"expression of {len(text)} characters; the limit is {MAX_LENGTH}")
    text = text.strip()
    try:
        tree = ast.parse(text, mode="eval")
        return as_signal(_Builder(text, frozenset(columns)).build(tree.body))
    except SyntaxError as error:
        raise ExpressionError(f"cannot read {_cut(text)!r}: {error.msg} at column {error.offset}") from error
    except ValueError as error:
        raise ExpressionError(f"cannot read {_cut(text)!r}: {error}") from error
    except (RecursionError, MemoryError) as error:
        raise ExpressionError(f"expression is nested too deeply: {text[:60]}…") from error


def _cut(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:100]}…"


class _Builder:
    def __init__(self, text: str, columns: frozenset[str]) -> None:
        self.text = text
        self.columns = columns

    def fail(self, node: ast.AST, message: str) -> ExpressionError:
        piece = ast.get_source_segment(self.text, node) or self.text
        where = f" in {_cut(self.text)!r}" if piece != self.text else ""
        return ExpressionError(f"{_cut(piece)!r}{where}: {message}")

    def build(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=value) if isinstance(value, int | float | str | bool) or value is None:
                return value
            case ast.Name(id=name):
                return self.name(node, name)
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return tuple(self.build(item) for item in items)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return self.operate(node, _BINARY[type(op)], self.operand(left), self.operand(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = self.build(operand)
                return -value if isinstance(value, int | float) else -as_signal(value)
            case ast.UnaryOp(op=ast.Invert() | ast.Not(), operand=operand):
                return ~as_signal(self.build(operand))
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
                return _COMPARE[type(op)](as_signal(self.build(left)), as_signal(self.build(right)))
            case ast.Compare():
                raise self.fail(node, "write chained comparisons as (a < b) & (b < c)")
            case ast.BoolOp(op=op, values=values):
                parts = [as_signal(self.build(value)) for value in values]
                combined = parts[0]
                for part in parts[1:]:
                    combined = combined & part if isinstance(op, ast.And) else combined | part
                return combined
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
                return self.call(node, name, args, keywords)
        known = "arithmetic, comparisons, literals and registered names"
        raise self.fail(node, f"{type(node).__name__} is not allowed; use {known}")

    def operand(self, node: ast.expr) -> Signal | float:
        """A signal, or a plain number so that options may be computed: gamma=1 - 0.05. Floats, which cannot explode."""
        value = self.build(node)
        if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                return float(value)
            except OverflowError as error:
                raise self.fail(node, str(error)) from error
        return as_signal(value)

    def operate(self, node: ast.expr, function: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
        if function in (operator.and_, operator.or_):
            left = as_signal(left)
        try:
            return function(left, right)
        except (ArithmeticError, TypeError) as error:
            raise self.fail(node, str(error)) from error

    def name(self, node: ast.expr, name: str) -> Any:
        if name in self.columns or name in SCHEMA:
            return col(name)
        if name in REGISTRY:
            return self.call(node, name, [], [])
        known = [*REGISTRY, *SCHEMA, *self.columns]
        raise self.fail(node, f"unknown name {name!r}{nearest(name, known, REGISTRY.kind)}")

    def call(self, node: ast.expr, name: str, args: list[ast.expr], keywords: list[ast.keyword]) -> Signal:
        if name not in REGISTRY:
            raise self.fail(node, f"unknown function {name!r}{nearest(name, REGISTRY)}")
        values = [self.build(arg) for arg in args]
        options = {}
        for keyword in keywords:
            if keyword.arg is None:
                raise self.fail(node, "** is not allowed")
            options[keyword.arg] = self.build(keyword.value)
        try:
            inspect.signature(REGISTRY[name]).bind(*values, **options)
        except TypeError as error:
            raise self.fail(node, f"{error}; it is {REGISTRY.signature(name)}") from error
        try:
            return REGISTRY[name](*values, **options)
        except (TypeError, ValueError) as error:
            raise self.fail(node, str(error)) from error
