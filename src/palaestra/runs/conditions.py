"""Conditions over the metrics of a run, such as `success > .9` and `stalled(5)`: when a phase of a recipe is over.

A condition is arithmetic, comparisons, `and`, `or`, `not`, names of metrics and three functions (`stalled`, `mean`,
`share`); nothing else runs.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from palaestra.errors import InputError, nearest

Line = Mapping[str, Any]

PLAIN = (
    "reward", "success", "episodes", "turns", "tokens_in", "tokens_out", "groups", "incomplete_groups", "added_rows",
)  # fmt: skip
"""Metrics of an iteration that are numbers and do not depend on a clock."""

NESTED = ("policies", "components", "stages", "metrics", "evaluation")
"""Metrics of an iteration with parts: `policies.player.entropy`."""

COUNTS = ("iterations", "round")
"""Iterations of the phase so far, and how often its cycle has begun."""

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: operator.pow, ast.USub: operator.neg, ast.UAdd: operator.pos,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip


class Condition:
    """Callable test of whether a training phase ends: an iteration count, or an expression over its metrics.

    A name is the latest value that was measured in the phase. A condition on what was not measured is false, and so is
    its `not`; beside it `or` and `and` go by the other side: `evaluation.success > .9 or iterations >= 10` ends.
    `stalled(n)` is true if the best success (the best reward, where there is no success) of the last n iterations is
    not above that of those before; `stalled(n, x, by)` looks at x instead, and asks for more than `by`. `mean(x, n)` is
    the mean over the last n iterations. `iterations` is the number of iterations of the phase so far, `round` that of
    the times that its cycle has begun. `share(x)` is true when the phase has had the share x, in (0, 1), of all
    iterations of the run, rounded, and at least one.

    Args:
        text: a number of iterations, or an expression.
        total: Iterations of the run; None: not known, and `share(x)` is false.

    Raises:
        InputError: the number is below 1, or the text is no such expression.

    Example:
        >>> done = Condition("mean(success, 2) > .5 and iterations >= 3")
        >>> [done([{"success": each} for each in seen]) for seen in ([0.9, 0.9], [0.1, 0.5, 0.6])]
        [False, True]
    """

    def __init__(self, text: int | str, total: int | None = None) -> None:
        self.text, self.total = text, total
        if isinstance(text, bool) or not isinstance(text, int | str):
            raise InputError(f"expected a number of iterations or a condition such as success > .9, found {text!r}")
        if isinstance(text, int) and text < 1:
            raise InputError(f"a phase has at least 1 iteration, found {text}")
        try:
            self.tree = ast.parse(f"iterations >= {text}" if isinstance(text, int) else text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise InputError(
                f"{text!r} is no condition: write a number of iterations, success > .9, stalled(5), …"
            ) from error
        if not isinstance(self.tree, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Call):
            raise InputError(f"{text!r} is a value, not a condition: compare it with something, success > .9")
        self.names = set(_names(self.tree))
        calls = (node for node in ast.walk(self.tree) if isinstance(node, ast.Call))
        self.shares = any(_dotted(call.func) == "share" for call in calls)
        _checked(self.tree)

    def __call__(self, lines: Sequence[Line], round: int = 1) -> bool:
        """Whether the phase ends after these metrics dicts of its iterations."""
        try:
            return bool(_value(self.tree, lines, round, self.total))
        except _UNKNOWN:
            return False

    def check(self, policies: Collection[str]) -> None:
        """Raise InputError if a name in the expression is no metric that a run has.

        Raises:
            InputError: one is no metric, or that of a policy that is not there.
        """
        for name in sorted(self.names - set(COUNTS)):
            first, *rest = name.split(".")
            if first in NESTED and rest and not rest[-1].endswith("seconds"):
                if first == "policies" and rest[0] not in policies:
                    raise InputError(f"{name}: no policy {rest[0]!r}{nearest(rest[0], policies)}")
            elif first not in PLAIN or rest:
                known = (*PLAIN, *(f"{each}.…" for each in NESTED), *COUNTS)
                raise InputError(f"no metric {name!r} that a condition can read{nearest(name, known)}")

    def found(self, lines: Sequence[Line]) -> str:
        """Text on why the phase has not ended: the condition and the latest values of its metrics."""
        if isinstance(self.text, int):
            return f"{len(lines)} of {self.text} iterations"
        values = {name: _latest(name, lines) for name in sorted(self.names - set(COUNTS))}
        told = [
            f"{name} {'was not measured' if each is None else format(each, '.3g')}" for name, each in values.items()
        ]
        return f"{self.text} was never true in {len(lines)} iterations" + (f", {', '.join(told)}" if told else "")


class _NotMeasured(Exception):
    """A metric has no value yet."""


_UNKNOWN = (_NotMeasured, ZeroDivisionError, OverflowError)


def _of(name: str, line: Line) -> float | None:
    value: Any = line
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return None if value is None or isinstance(value, Mapping | str) else float(value)


def _latest(name: str, lines: Sequence[Line]) -> float | None:
    return next((value for line in reversed(lines) if (value := _of(name, line)) is not None), None)


def _dotted(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    inner = _dotted(node.value) if isinstance(node, ast.Attribute) else None
    return f"{inner}.{node.attr}" if isinstance(node, ast.Attribute) and inner else None


def _names(node: ast.AST) -> Iterator[str]:
    """Metrics that an expression reads."""
    if (name := _dotted(node)) is not None:
        yield name
        return
    if isinstance(node, ast.Call) and _dotted(node.func) == "stalled" and len(node.args) < 2:
        yield "success"
    for child in node.args if isinstance(node, ast.Call) else ast.iter_child_nodes(node):
        yield from _names(child)


_ARGUMENTS = {
    "stalled": (1, 3, "stalled(n), stalled(n, x) or stalled(n, x, by)"),
    "mean": (2, 2, "mean(x, n)"),
    "share": (1, 1, "share(x)"),
}


def _checked(node: ast.AST) -> None:
    """Refuse what is not part of the language."""
    if isinstance(node, ast.Call):
        name = _dotted(node.func) or ""
        if name not in _ARGUMENTS:
            raise InputError(f"a condition has no function {name!r}{nearest(name, _ARGUMENTS)}")
        least, most, form = _ARGUMENTS[name]
        if name == "share":
            part = [each.value for each in node.args if isinstance(each, ast.Constant)]
            if (
                node.keywords
                or len(node.args) != 1
                or not part
                or not isinstance(part[0], float)
                or not 0 < part[0] < 1
            ):
                raise InputError("write share(x), x a part of the run's iterations, a number in (0, 1)")
            return
        number = node.args[:1] if name == "stalled" else node.args[1:]
        whole = [each.value for each in number if isinstance(each, ast.Constant) and isinstance(each.value, int)]
        if node.keywords or not least <= len(node.args) <= most or not whole or whole[0] < 1:
            raise InputError(f"write {form}, n a number of iterations, at least 1")
    known = isinstance(node, ast.Compare | ast.BoolOp | ast.BinOp | ast.UnaryOp | ast.Call | ast.Name | ast.Attribute)
    if isinstance(node, ast.Constant):
        known = isinstance(node.value, int | float)
    operators: list[ast.AST] = list(node.ops) if isinstance(node, ast.Compare) else []
    operators += [node.op] if isinstance(node, ast.BinOp | ast.UnaryOp) else []
    if not known or any(type(each) not in _OPERATORS and not isinstance(each, ast.Not) for each in operators):
        raise InputError(
            f"a condition cannot hold {ast.unparse(node)!r}: only numbers, metrics, + - * / **, and, or, "
            f"not, comparisons, stalled and mean"
        )
    inside = node.args if isinstance(node, ast.Call) else ast.iter_child_nodes(node)
    for child in [] if isinstance(node, ast.Attribute) else inside:
        if isinstance(child, ast.expr):
            _checked(child)


def _value(node: ast.AST, lines: Sequence[Line], round_: int, total: int | None = None) -> Any:
    def of(inner: ast.AST) -> Any:
        return _value(inner, lines, round_, total)

    match node:
        case ast.Constant(value=value):
            return value
        case ast.BoolOp(op=sign, values=values):
            decisive, unknown = isinstance(sign, ast.Or), None
            for each in values:
                try:
                    if bool(of(each)) is decisive:
                        return decisive
                except _UNKNOWN as error:  # another one may decide
                    unknown = error
            if unknown is not None:
                raise unknown
            return not decisive
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not of(operand)
        case ast.UnaryOp(op=sign, operand=operand):
            return _OPERATORS[type(sign)](of(operand))
        case ast.BinOp(left=left, op=sign, right=right):
            return _OPERATORS[type(sign)](of(left), of(right))
        case ast.Compare(left=left, ops=signs, comparators=others):
            values = [of(left), *map(of, others)]
            return all(_OPERATORS[type(sign)](a, b) for sign, a, b in zip(signs, values, values[1:]))
        case ast.Call(func=ast.Name(id="mean"), args=[inner, last]):
            series = _series(inner, lines, round_)[-of(last) :]
            if not series:
                raise _NotMeasured
            return sum(series) / len(series)
        case ast.Call(func=ast.Name(id="share"), args=[part]):
            return total is not None and len(lines) >= max(round(of(part) * total), 1)
        case ast.Call(args=[last, *rest]):
            return _stalled(of(last), rest, lines, round_)
    name = _dotted(node)
    assert name is not None
    if name in COUNTS:
        return len(lines) if name == "iterations" else round_
    if (value := _latest(name, lines)) is None:
        raise _NotMeasured
    return value


def _stalled(last: int, rest: Sequence[ast.AST], lines: Sequence[Line], round_: int) -> bool:
    values = (
        _series(rest[0], lines, round_)
        if rest
        else [value for line in lines if (value := _of("success", line)) is not None]
        or [value for line in lines if (value := _of("reward", line)) is not None]
    )
    by = _value(rest[1], lines, round_) if len(rest) > 1 else 0.0
    return len(values) > last and max(values[-last:]) <= max(values[:-last]) + by


def _series(node: ast.AST, lines: Sequence[Line], round_: int) -> list[float]:
    """The expression in each iteration in which all that it reads was measured."""
    found = []
    for line in lines:
        try:
            found.append(float(_value(node, [line], round_)))
        except _NotMeasured:
            continue
    return found
