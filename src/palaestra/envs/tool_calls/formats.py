"""Tool calls: their type, errors of unreadable ones, and the registry of formats."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palaestra.algebra.turns import clean
from palaestra.errors import nearest
from palaestra.foundation.registry import Registry

FAULTS = ("json", "shape", "unclosed", "unopened", "unknown", "arguments", "many")
"""No JSON; not a name with arguments; no end mark; no begin mark; no such tool; not what it takes; too many calls."""
MOST_CALLS = 32
LONGEST_FAULT = 200
Schemas = Sequence[Mapping[str, Any]]
_THINKING = re.compile(r"(.*?</think>(\s*<think>.*?</think>)*)?(\s*<think>.*)?", re.DOTALL)
"""Its begin mark may stand in the prompt, and its end mark be missing where it was cut off."""


@dataclass(frozen=True)
class Call:
    """Data of a tool call: the tool's name and its arguments, plain (JSON) values."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class ParsedAnswer:
    """Data of a parsed model answer: the text outside tool calls, the `Call`s, and the parse error if any."""

    text: str
    calls: tuple[Call, ...] = ()
    error: str | None = None


class Format(ABC):
    """Base class of text formats of tool calls: parses calls from a model's text and writes them as text."""

    @abstractmethod
    def find(self, text: str, tools: Schemas) -> tuple[str, list[Call]]:
        """Split a text into the words beside its calls, and the calls; raises FaultError for what cannot be read."""

    @abstractmethod
    def write(self, calls: Sequence[Call]) -> str:
        """Tool calls as text in this format."""

    def read(self, text: str, tools: Schemas = ()) -> ParsedAnswer:
        """Parse a model's answer, and check its calls against the schemas in `tools`; thinking calls nothing."""
        thinking, said = split_thinking(text)
        try:
            beside, calls = self.find(said, tools)
        except FaultError as error:
            return ParsedAnswer(text.strip(), error.calls, fault(error.kind, str(error)))
        problem = (
            fault("many", f"{len(calls)} calls at once, at most {MOST_CALLS}") if len(calls) > MOST_CALLS else None
        )
        if tools:
            problem = problem or next((found for call in calls if (found := check(call, tools))), None)
        return ParsedAnswer(f"{thinking}{beside}".strip(), tuple(calls), problem)


class FaultError(ValueError):
    """Raised for malformed tool calls in a text; `calls` are those parsed before the fault."""

    def __init__(self, kind: str, why: str, calls: Iterable[Call] = ()) -> None:
        super().__init__(why)
        self.kind, self.calls = kind, tuple(calls)


FORMATS: Registry[Format] = Registry("format", home=("palaestra.envs.tool_calls",), example="hermes")
"""Readers and writers of calls; one of your own is a class with `find` and `write`."""


def split_thinking(text: str) -> tuple[str, str]:
    """Texts of (thinking, answer) of a model that thinks first: all up to `</think>`, with or without a begin mark.

    What begins with `<think>` and was cut off before the end of it is all thinking.

    >>> split_thinking("<think>41? No.</think> 42"), split_thinking("42")
    (('<think>41? No.</think>', ' 42'), ('', '42'))
    """
    found = _THINKING.match(text)
    assert found is not None  # all of it is optional
    return found[0], text[found.end() :]


def parse(text: str, format: str = "auto", tools: Schemas = ()) -> ParsedAnswer:
    """Parses a model's text into a `ParsedAnswer` (text, tool calls, error) by the name of a registered format.

    >>> parse('So: <tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>')
    ParsedAnswer(text='So:', calls=(Call(name='add', arguments={'a': 1}),), error=None)
    >>> parse('<tool_call>{"name": "add", "arguments": {"a": 1}</tool_call>').error
    "json: Expecting ',' delimiter at character 48"
    """
    return FORMATS.find(format)().read(text, tools)


def write(calls: Sequence[Call], format: str = "hermes", *, text: str = "") -> str:
    """Text of a model's answer: `text`, then `calls` written in the registered format of this name.

    >>> print(write([Call("add", {"a": 1})], "llama"))
    {"name": "add", "parameters": {"a": 1}}
    """
    return "\n".join(part for part in (text, FORMATS.find(format)().write(calls) if calls else "") if part)


def to_json(calls: Sequence[Call]) -> str:
    """JSON text of a list of `Call`s, the form of the facts `calls` and `gold` for `palaestra.rewards.match_calls`."""
    return json.dumps([{"name": call.name, "arguments": dict(call.arguments)} for call in calls], ensure_ascii=False)


def check(call: Call, tools: Schemas) -> str | None:
    """Error text if a `Call` fits none of the tools' JSON schemas (name, arguments, types, enum), else None.

    >>> tool = {"function": {"name": "add", "parameters": {"properties": {"a": {"type": "integer"}}}}}
    >>> check(Call("ad", {}), [tool]), check(Call("add", {"a": "x"}), [tool])
    ("unknown: no tool 'ad'; did you mean 'add'?", "arguments: add: 'a' is 'x', expected integer")
    """
    known = {str(function_of(tool).get("name")): function_of(tool).get("parameters") or {} for tool in tools}
    if call.name not in known:
        return fault("unknown", f"no tool {call.name[:60]!r}{nearest(call.name[:60], known)}")
    given = known[call.name]
    takes = given.get("properties") or {}
    rest = given.get("additionalProperties", bool(given) and "properties" not in given)
    for name in given.get("required") or ():
        if name not in call.arguments:
            return fault("arguments", f"{call.name}: {name!r} is missing")
    for name, value in call.arguments.items():
        schema = takes.get(name, rest)
        if schema is False:
            return fault("arguments", f"{call.name}: it takes no {name[:60]!r}{nearest(name[:60], takes)}")
        if not isinstance(schema, Mapping):
            continue  # true: anything
        wanted = types_of(schema)
        if wanted and _TYPES.keys() >= set(wanted) and not any(_is(value, each) for each in wanted):
            return fault("arguments", f"{call.name}: {name!r} is {short(value)}, expected {' or '.join(wanted)}")
        if "enum" in schema and value not in schema["enum"]:
            return fault("arguments", f"{call.name}: {name!r} is {short(value)}, expected one of {schema['enum']}")
    return None


def types_of(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """The types that a JSON schema names, a list or in `anyOf` and `oneOf`, too; empty if a value may have any.

    >>> types_of({"type": ["string", "null"]}), types_of({"anyOf": [{"type": "integer"}, {"type": "null"}]})
    (('string', 'null'), ('integer', 'null'))
    """
    named = schema.get("type")
    if named is not None:
        return (named,) if isinstance(named, str) else tuple(named)
    parts = [types_of(each) for each in schema.get("anyOf") or schema.get("oneOf") or ()]
    return tuple(name for part in parts for name in part) if all(parts) else ()


_TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": int | float,
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


def _is(value: Any, wanted: str) -> bool:
    if isinstance(value, bool):
        return wanted == "boolean"
    if wanted == "integer" and isinstance(value, float):
        return value == value // 1
    return isinstance(value, _TYPES[wanted])


def function_of(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """The mapping under "function" in a tool's JSON schema (name, parameters), or the schema itself without it."""
    found = tool.get("function", tool)
    return found if isinstance(found, Mapping) else {}


def fault(kind: str, why: str) -> str:
    """A fault message `kind: why` on one line of bounded length."""
    text = clean(" ".join(f"{kind}: {why}".split()))
    return text if len(text) <= LONGEST_FAULT else text[:LONGEST_FAULT] + " …"


def short(value: Any) -> str:
    """A value's repr for a message, cut to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"
