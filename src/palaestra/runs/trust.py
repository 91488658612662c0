"""Code that a recipe would import, found by reading alone; see docs/security.md.

Whoever runs a recipe runs the code that it names. So a file that names any is refused until somebody says that he has
read it. Every text of a recipe is looked at, whatever field it stands in: what looks like `module:name` counts, because
options of a stage or an env may be loaded, too.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any, NamedTuple

from palaestra.errors import ExpressionError, PalaestraError, RecipeError
from palaestra.foundation.registry import is_open, read_call, split_calls
from palaestra.play.executors import EXECUTORS

OWN_CLUSTER = ("auto", "local")
"""Addresses of a Ray cluster that runs on this machine; any other may answer with what runs code here."""

_CODE = re.compile(r"(?:gymnasium/)?(?P<module>[A-Za-z_][\w.]*):(?!/)[\w./-]+")
"""`module:name`; also Gymnasium's `module:Env-v0`, which Gymnasium imports."""


class NamedCode(NamedTuple):
    """Data on code that a recipe names: the recipe's field, the text in it, and the module."""

    field: str
    text: str
    module: str


def code_in(data: Any) -> list[NamedCode]:
    """List of `NamedCode`: all code outside this package that a recipe (plain data, or a part of it) names.

    >>> code_in({"env": {"make": "os:system"}, "stages": ["embed(model='my.net:small')"], "imports": ["mine"]})
    [NamedCode(field='env.make', text='os:system', module='os'),
     NamedCode(field='stages', text='my.net:small', module='my.net'),
     NamedCode(field='imports', text='mine', module='mine')]
    """
    found = {(each.field, each.text): each for each in _walk(data, ()) if not is_open(each.text)}
    return list(found.values())


def refuse(data: Any, where: str, *, typed: Any = ()) -> None:
    """Raise RecipeError if a recipe's data name outside code, except what the user's own data (`typed`) name too.

    Raises:
        RecipeError: names the fields, the modules, and how to go on.
    """
    own = {named.text for named in code_in(typed)}
    found = [named for named in code_in(data) if named.text not in own]
    if found:
        shown = ", ".join(f"{named.field} {named.text!r}" for named in found[:4])
        more = f" and {len(found) - 4} more" if len(found) > 4 else ""
        modules = ", ".join(dict.fromkeys(named.module for named in found))
        raise RecipeError(
            f"{where} names code ({shown}{more}), which would run with your rights: read {modules}, then add --trust "
            "(in Python trust=True)"
        )


def _walk(value: Any, path: tuple[str, ...]) -> Iterator[NamedCode]:
    field = ".".join(path)
    if isinstance(value, Mapping):
        for key, inner in _without_words(value, path).items():
            yield from _walk(str(key), path)
            yield from _walk(inner, (*path, str(key)))
    elif isinstance(value, str):
        if path[-1:] == ("imports",):
            yield NamedCode(field, value, value)
        elsewhere = path[-1:] == ("address",) or path[-2:] == ("options", "cluster")
        if elsewhere and value not in OWN_CLUSTER:
            yield NamedCode(field, value, f"who runs the cluster at {value}")
        yield from (NamedCode(field, text, module) for text, module in _said(value))
    elif isinstance(value, Iterable):
        values = list(value)
        if path[-1:] == ("command",):
            yield NamedCode(field, " ".join(map(str, values)), f"the program {' '.join(map(str, values))}")
        if path[-1:] != ("imports",) and values and all(isinstance(each, str) for each in values):
            yield from _walk(", ".join(values), path)  # a call that YAML cut at its commas
        for each in values:
            yield from _walk(each, path)


def _said(text: str) -> Iterator[tuple[str, str]]:
    """Code that a text names as a whole, as one of several calls, or as an argument of a call."""
    for part in dict.fromkeys((text, *split_calls(text))):
        if match := _CODE.fullmatch(part.strip()):
            yield part.strip(), match["module"]
        try:
            name, values, options = read_call(part)
        except ExpressionError:
            for key, inner in _inside(part):
                yield from ((named.text, named.module) for named in _walk(inner, ("argument", key)))
            continue
        if ":" in name:
            yield name, name.partition(":")[0]
        for key, each in _arguments(name, values, options):
            if name == "tournament" and str(each).startswith("policy:"):  # its judge, of the team
                continue
            yield from ((named.text, named.module) for named in _walk(each, ("argument", key)))


def _arguments(name: str, values: Iterable[Any], options: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Arguments of a call with their names; executors take theirs by position, too."""
    yield from options.items()
    try:
        names = list(inspect.signature(EXECUTORS[name]).parameters) if name in EXECUTORS else []
    except (PalaestraError, ValueError):
        names = []
    yield from ((key or "", value) for key, value in zip_longest(names[: len(list(values))], values))


def _inside(text: str) -> Iterator[tuple[str, str]]:
    """Every text in a call in which calls stand, as scorers do inside of scorers, with the argument that holds it."""
    try:
        call = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    if isinstance(call, ast.Call):
        named = {
            id(node): part.arg or ""
            for part in ast.walk(call)
            if isinstance(part, ast.keyword)
            for node in ast.walk(part.value)
        }
        for node in ast.walk(call):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != text:
                yield named.get(id(node), ""), node.value


def _without_words(part: Mapping[str, Any], path: tuple[str, ...]) -> Mapping[str, Any]:
    """A part of a recipe without what is never looked up as code: words for people, seats, a hub's qwen3:latest."""
    if part.get("kind") in ("lm", "chat", "served") and isinstance(options := part.get("options"), Mapping):
        part = {**part, "options": {key: value for key, value in options.items() if key != "model"}}
    words = ("name", "description", "team") if not path else ("note",) if path[-2:-1] == ("controls",) else ()
    return {key: value for key, value in part.items() if key not in words}
