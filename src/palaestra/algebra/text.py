"""The text of a signal, which `parse` reads back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from palaestra.algebra.binding import bound
from palaestra.algebra.tree import Signal

LARGEST = 20_000
"""Nodes of a tree, repeated ones counted each time, up to which its text spells it out."""

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**", "and": "&", "or": "|",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip


@bound
def text(node: Signal) -> str:
    """Text form of a `Signal`: spelt out, or with named methods as names where that is too long to be read."""
    return _spelt(node, str if node.size <= LARGEST else _name)


@bound
def call(name: str, args: tuple[Any, ...], options: dict[str, Any]) -> str:
    """The text of a call by name, which is a signal's label: grpo('score')."""
    given = [_argument(value) for value in args]
    given += [f"{name}={_argument(value)}" for name, value in options.items()]
    return f"{name}({', '.join(given)})"


def _argument(value: Any) -> str:
    if isinstance(value, tuple):
        return "(" + ", ".join(_argument(v) for v in value) + ("," if len(value) == 1 else "") + ")"
    return _name(value) if isinstance(value, Signal) else repr(value)


def _name(node: Signal) -> str:
    """`short`, or "…" for what is too long to be read."""
    if node.size <= LARGEST:
        return short(node)
    text = node.label or "…"
    return text if len(text) <= LARGEST else "…"


def _spelt(node: Signal, show: Callable[[Signal], str]) -> str:
    """The text of a node, given how its parts are shown."""

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
    options = [f"{name}={value!r}" for name, value in node.options.items() if value is not None]
    return f"{node.op}({', '.join([show(child) for child in node.inputs] + options)})"


def short(node: Signal) -> str:
    """The text of a `Signal` with named methods left unexpanded: `0.5 * grpo()`."""
    return node.label or (_spelt(node, short) if node.size <= LARGEST else "…")
