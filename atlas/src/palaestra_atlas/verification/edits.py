"""Source edits: replace one part of a mechanism by a neutral stand-in, for as long as a `with` block lasts.

An edit changes a function's code object in place, so every reference to the function sees it, registries
and bound methods too. Nothing is written to disk. Child processes do not see an edit.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import inspect
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from palaestra.errors import InputError
from palaestra.foundation.registry import load_object


class Edit(BaseModel):
    """One change of a function, a default or a module's constant.

    Exactly one of `replace` (with `by`), `body`, `default` and `set` is given.

    Attributes:
        at: what is changed, `module:qualified.name`.
        replace: text of the function's source; it must occur exactly once.
        by: the text that stands in for it.
        body: source that stands in for the whole body of the function.
        default: new defaults of parameters, by name.
        set: new value of a module's or class's attribute.
        uses: `module:name` of what the stand-in needs and the module does not import.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: str = Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")
    replace: str | None = None
    by: str = ""
    body: str | None = None
    default: dict[str, Any] | None = None
    set: Any = None
    uses: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _is_one_change(self) -> Edit:
        given = self.model_fields_set & {"replace", "body", "default", "set"}
        if len(given) != 1:
            raise ValueError(f"{self.at}: give exactly one of replace, body, default and set")
        if "by" in self.model_fields_set and self.replace is None:
            raise ValueError(f"{self.at}: `by` belongs to `replace`")
        return self

    @property
    def module(self) -> str:
        """Name of the module."""
        return self.at.partition(":")[0]

    @property
    def name(self) -> str:
        """Qualified name inside the module."""
        return self.at.partition(":")[2]


@contextlib.contextmanager
def applied(edits: Sequence[Edit]) -> Iterator[None]:
    """Apply edits until the block ends, whatever happens in it.

    Raises:
        InputError: an edit does not fit the code: no such name, or a text that does not occur exactly once.
    """
    with contextlib.ExitStack() as stack:
        sources: dict[str, dict[str, list[Edit]]] = {}
        for edit in edits:
            if edit.replace is not None or edit.body is not None:
                sources.setdefault(edit.module, {}).setdefault(edit.name, []).append(edit)
            elif edit.default is not None:
                stack.enter_context(_defaults(edit))
            else:
                stack.enter_context(_attribute(edit))
        for edit in edits:
            for each in edit.uses:
                stack.enter_context(_name(edit.module, each))
        for module, changed in sources.items():
            stack.enter_context(_source(module, changed))
        yield


def function_of(at: str) -> types.FunctionType:
    """The Python function behind `module:qualified.name`, with decorators, properties and bindings taken off.

    Raises:
        InputError: there is no such name, or it is no function.
    """
    module, _, name = at.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        try:
            found = inspect.getattr_static(found, part)
        except AttributeError as error:
            raise InputError(f"{at}: {getattr(found, '__name__', found)} has no {part!r}") from error
    if isinstance(found, property):
        found = found.fget
    if isinstance(found, staticmethod | classmethod | functools.cached_property):
        found = getattr(found, "__func__", None) or found.func  # type: ignore[union-attr]
    found = inspect.unwrap(found)
    if not isinstance(found, types.FunctionType):
        raise InputError(f"{at}: is no function but {type(found).__name__}")
    return found


def recompiled(module: str, text: str | ast.Module) -> dict[str, types.CodeType]:
    """Code objects of all functions of a changed module source, by qualified name; of a property the getter's."""
    tree = _Getters().visit(ast.parse(text) if isinstance(text, str) else text)
    path = inspect.getsourcefile(importlib.import_module(module)) or module
    found: dict[str, types.CodeType] = {}

    def visit(code: types.CodeType) -> None:
        for each in code.co_consts:
            if isinstance(each, types.CodeType):
                found[each.co_qualname] = each
                visit(each)

    visit(compile(tree, path, "exec", dont_inherit=True))
    return found


class _Getters(ast.NodeTransformer):
    """Leaves out setters of properties, which have the name of their getters."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:
        decorators = [each.attr for each in node.decorator_list if isinstance(each, ast.Attribute)]
        return None if {"setter", "deleter"} & {*decorators} else self.generic_visit(node)


@contextlib.contextmanager
def swapped(codes: dict[str, types.CodeType], functions: dict[str, types.FunctionType]) -> Iterator[None]:
    """Give functions other code, by qualified name, until the block ends; their caches are emptied on both ways."""
    before = {name: function.__code__ for name, function in functions.items()}
    try:
        for name, function in functions.items():
            if name not in codes:
                raise InputError(f"{function.__module__}:{name}: the change removes the function")
            try:
                function.__code__ = codes[name]
            except ValueError as error:
                where = f"{function.__module__}:{name}"
                raise InputError(f"{where}: the change uses other names of the enclosing function") from error
        yield
    finally:
        for name, function in functions.items():
            function.__code__ = before[name]


@contextlib.contextmanager
def _source(module: str, changed: dict[str, list[Edit]]) -> Iterator[None]:
    path = inspect.getsourcefile(importlib.import_module(module))
    text = Path(str(path)).read_text(encoding="utf-8")
    places = _places(text)
    lines = text.splitlines(keepends=True)
    spans = []
    for name, edits in changed.items():
        if name not in places:
            raise InputError(f"{module}:{name}: there is no such function in the source")
        spans.append((places[name], edits))
    for node, edits in sorted(spans, key=lambda each: -each[0].lineno):
        first, last = node.lineno - 1, node.end_lineno or node.lineno
        lines[first:last] = [_changed("".join(lines[first:last]), node, edits)]
    functions = {name: function_of(f"{module}:{name}") for name in changed}
    caches = [cache for name in changed if (cache := _cache_of(module, name))]
    try:
        with swapped(recompiled(module, "".join(lines)), functions):
            for cache in caches:
                cache.cache_clear()
            yield
    finally:
        for cache in caches:
            cache.cache_clear()


@functools.lru_cache(maxsize=64)
def _places(text: str) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """Nodes of the functions of a source, by name; kept, as many edits of one module ask for them."""
    return _functions(_Getters().visit(ast.parse(text)))


def _functions(tree: ast.AST) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """Function definitions by qualified name."""
    found: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                visit(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                found[f"{prefix}{child.name}"] = child
                visit(child, f"{prefix}{child.name}.<locals>.")
            else:
                visit(child, prefix)

    visit(tree, "")
    return found


def _changed(text: str, node: ast.FunctionDef | ast.AsyncFunctionDef, edits: Sequence[Edit]) -> str:
    for edit in edits:
        if edit.body is not None:
            lines = text.splitlines(keepends=True)
            start = node.body[0].lineno - node.lineno
            indent = " " * node.body[0].col_offset
            body = "".join(f"{indent}{line}\n" for line in edit.body.strip("\n").splitlines())
            if node.body[0].lineno == node.lineno:
                raise InputError(f"{edit.at}: the body stands on the line of the def; use replace")
            text = "".join(lines[:start]) + body
        else:
            count = text.count(str(edit.replace))
            if count != 1:
                raise InputError(f"{edit.at}: the text {edit.replace!r} occurs {count} times in its source, expected 1")
            text = text.replace(str(edit.replace), edit.by)
    return text


def _cache_of(module: str, name: str) -> Any:
    """The object with `cache_clear` that wraps a function, if there is one."""
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if hasattr(found, "cache_clear") else None


@contextlib.contextmanager
def _defaults(edit: Edit) -> Iterator[None]:
    function = function_of(edit.at)
    positional = [
        each.name
        for each in inspect.signature(function).parameters.values()
        if each.kind is not each.KEYWORD_ONLY and each.default is not each.empty
    ]
    before = function.__defaults__, function.__kwdefaults__
    plain, named = list(before[0] or ()), dict(before[1] or {})
    for name, value in (edit.default or {}).items():
        if name in named:
            named[name] = value
        elif name in positional:
            plain[positional.index(name)] = value
        else:
            raise InputError(f"{edit.at}: no parameter {name!r} with a default")
    function.__defaults__, function.__kwdefaults__ = tuple(plain), named
    try:
        yield
    finally:
        function.__defaults__, function.__kwdefaults__ = before


@contextlib.contextmanager
def _attribute(edit: Edit) -> Iterator[None]:
    owner: Any = importlib.import_module(edit.module)
    *path, name = edit.name.split(".")
    for part in path:
        owner = getattr(owner, part)
    if not hasattr(owner, name):
        raise InputError(f"{edit.at}: there is no {name!r}")
    before = getattr(owner, name)
    setattr(owner, name, edit.set)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextlib.contextmanager
def _name(module: str, path: str) -> Iterator[None]:
    """A name that a module does not have, lent to it."""
    names = vars(importlib.import_module(module))
    name = path.rpartition(":")[2]
    if name in names:
        yield
        return
    names[name] = load_object(path, "uses")
    try:
        yield
    finally:
        del names[name]
