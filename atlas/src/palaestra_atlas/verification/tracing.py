"""Which functions ran: a marker is compiled into each named function, so nothing else is slowed down."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from palaestra.errors import InputError
from palaestra_atlas.verification.edits import function_of, recompiled, swapped

_MARK = "__palaestra_called__"


@contextlib.contextmanager
def traced(names: Iterable[str]) -> Iterator[set[str]]:
    """The set of those names whose code has run so far, filled while the block lasts.

    Args:
        names: dotted names, `package.module.name`; of a class any of its methods counts.

    Raises:
        InputError: a name cannot be imported, or has no Python code that could run.
    """
    called: set[str] = set()
    by_module: dict[str, dict[str, tuple[str, ...]]] = {}
    for name in dict.fromkeys(names):
        for at in functions_of(name):
            module, _, qualified = at.partition(":")
            wanted = by_module.setdefault(module, {})
            wanted[qualified] = (*wanted.get(qualified, ()), name)
    with contextlib.ExitStack() as stack:
        for module, wanted in by_module.items():
            stack.enter_context(_marked(module, wanted, called))
        yield called


def functions_of(name: str) -> list[str]:
    """`module:qualified.name` of the functions that a dotted name stands for: itself, or the methods of a class.

    Raises:
        InputError: the name cannot be imported, or has no Python code.
    """
    found = resolve(name)
    if inspect.isclass(found):
        methods = [
            f"{owner.__module__}:{owner.__qualname__}.{attribute}"
            for owner in found.__mro__
            if owner.__module__.split(".")[0] == found.__module__.split(".")[0]
            for attribute, value in vars(owner).items()
            if _has_code(value)
        ]
        return [at for at in methods if _in_source(at)]
    function = inspect.unwrap(getattr(found, "__func__", found))
    if not isinstance(function, types.FunctionType):
        kind = type(found).__name__
        raise InputError(f"{name}: is {kind}, which has no code that could run; name a function or class")
    return [f"{function.__module__}:{function.__qualname__}"]


def resolve(name: str) -> Any:
    """The object of a dotted name.

    Raises:
        InputError: there is none.
    """
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        try:
            for part in parts[end:]:
                found = getattr(found, part)
        except AttributeError as error:
            raise InputError(f"{name}: {error}") from error
        return found
    raise InputError(f"{name}: cannot be imported")


def _has_code(value: Any) -> bool:
    inner = getattr(value, "fget", None) or getattr(value, "__func__", None) or getattr(value, "func", None) or value
    return isinstance(inspect.unwrap(inner) if callable(inner) else inner, types.FunctionType)


def _in_source(at: str) -> bool:
    """Whether the function is written out in its module: not made by a dataclass or a decorator from elsewhere."""
    module, _, name = at.partition(":")
    function = function_of(at)
    return function.__module__ == module and function.__code__.co_qualname == name


@contextlib.contextmanager
def _marked(module: str, wanted: dict[str, tuple[str, ...]], called: set[str]) -> Iterator[None]:
    loaded = importlib.import_module(module)
    tree = ast.parse(Path(str(inspect.getsourcefile(loaded))).read_text(encoding="utf-8"))
    _Marker(wanted).visit(tree)
    ast.fix_missing_locations(tree)
    functions = {qualified: function_of(f"{module}:{qualified}") for qualified in wanted}
    outer = vars(loaded).get(_MARK)
    setattr(loaded, _MARK, called.update)
    try:
        with swapped(recompiled(module, tree), functions):
            yield
    finally:
        delattr(loaded, _MARK) if outer is None else setattr(loaded, _MARK, outer)


class _Marker(ast.NodeTransformer):
    """Inserts the call that notes a name at the head of each wanted function."""

    def __init__(self, wanted: dict[str, tuple[str, ...]]) -> None:
        self.wanted, self.prefix = wanted, ""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self._inside(node, f"{self.prefix}{node.name}.")
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        name = self.wanted.get(f"{self.prefix}{node.name}")
        self._inside(node, f"{self.prefix}{node.name}.<locals>.")
        if name is not None:
            mark = ast.parse(f"{_MARK}({name!r})").body
            place = 1 if ast.get_docstring(node, clean=False) is not None else 0
            node.body[place:place] = mark
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

    def _inside(self, node: ast.AST, prefix: str) -> None:
        outer, self.prefix = self.prefix, prefix
        self.generic_visit(node)
        self.prefix = outer
