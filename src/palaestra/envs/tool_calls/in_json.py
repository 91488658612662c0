"""Formats whose calls are JSON, or an expression of Python; and the one that looks which it is."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from palaestra.algebra.turns import clean
from palaestra.envs.sandbox import read
from palaestra.envs.tool_calls.formats import FORMATS, Call, FaultError, Format, Schemas, function_of, short
from palaestra.envs.tool_calls.in_marks import Invoke, Xml


@FORMATS.register("hermes")
class Hermes(Format):
    """Tool-call format of Hermes and Qwen: JSON between <tool_call> and </tool_call>; the last may be unclosed."""

    OPEN, CLOSE = "<tool_call>", "</tool_call>"

    def find(self, text: str, tools: Schemas) -> tuple[str, list[Call]]:
        """Split a text into its words and its calls in Hermes's tags (see `Format.find`)."""
        beside: list[str] = []
        calls: list[Call] = []
        at = 0
        while (found := text.find(self.OPEN, at)) >= 0:
            beside.append(text[at:found])
            start = found + len(self.OPEN)
            if not text[start:].strip():
                raise FaultError("unclosed", "nothing behind <tool_call>", calls)
            value, at = _value(text, start, calls)
            calls.append(_call(value, calls))
            rest = text[at:].lstrip()
            if rest and not rest.startswith(self.CLOSE):
                raise FaultError("unclosed", f"{short(rest)} where </tool_call> was expected", calls)
            at = len(text) - len(rest) + len(self.CLOSE) if rest else len(text)
        beside.append(text[at:])
        if any(self.CLOSE in part for part in beside):
            raise FaultError("unopened", "</tool_call> without <tool_call>", calls)
        return "".join(beside), calls

    def write(self, calls: Sequence[Call]) -> str:
        """Tool calls as text in Hermes's tags."""
        return "\n".join(f"{self.OPEN}\n{_dump(_named(call))}\n{self.CLOSE}" for call in calls)


@FORMATS.register("llama")
class LlamaFormat(Format):
    """Tool-call format of Llama 3: JSON with "parameters", separated by ;, or calls in Python's syntax."""

    TAG = "<|python_tag|>"

    def find(self, text: str, tools: Schemas) -> tuple[str, list[Call]]:
        """Split a text into its words and its calls in Llama's JSON (see `Format.find`)."""
        before, tag, behind = text.partition(self.TAG)
        said = behind.strip() if tag else text.strip()
        if tag and re.match(r"[\w.]+\(", said):
            return before, [_python(said.replace(".call(", "(", 1))]
        if not tag and not _looks_like_calls(said, tools):
            return text, []
        calls: list[Call] = []
        at = 0
        while at < len(said):
            value, at = _value(said, at, calls)
            calls += [_call(value, calls)]
            rest = said[at:].lstrip("; \t\r\n")
            at = len(said) - len(rest)
        if not calls:
            raise FaultError("json", "nothing behind <|python_tag|>")
        return before if tag else "", calls

    def write(self, calls: Sequence[Call]) -> str:
        """Tool calls as text in Llama's JSON."""
        return "; ".join(_dump({"name": call.name, "parameters": dict(call.arguments)}) for call in calls)


@FORMATS.register("json")
class Json(Format):
    """Tool-call format of plain JSON: an object with "name" and "arguments", or a list, alone or in a code fence.

    It may stand at the end of a text, and the arguments of a tool that there is be missing. Other JSON is an answer.
    """

    BEHIND = re.compile(
        r'(?:```(?:json|tool_call)?\s*\n|\n)\s*(\[?\s*\{\s*"(?:name|arguments|parameters|function|id|type)"\s*:.*)',
        re.DOTALL,
    )

    def find(self, text: str, tools: Schemas) -> tuple[str, list[Call]]:
        """Split a text into its words and its calls in plain JSON (see `Format.find`)."""
        fenced = re.fullmatch(r"\s*```(?:json|tool_call)?\s*\n(.*?)\n?\s*```\s*", text, re.DOTALL)
        said = fenced[1].strip() if fenced else text.strip()
        if _looks_like_calls(said, tools):
            return "", _list(said)
        behind = self.BEHIND.search(text)
        if behind is None or not _looks_like_calls(behind[1], tools):
            return text, []
        return text[: behind.start()], _list(re.sub(r"\s*```\s*\Z", "", behind[1]).strip())

    def write(self, calls: Sequence[Call]) -> str:
        """Tool calls as plain JSON text."""
        found = [_named(call) for call in calls]
        return _dump(found if len(found) > 1 else found[0])


@FORMATS.register("mistral")
class Mistral(Format):
    """Tool-call format of Mistral: [TOOL_CALLS] and a JSON list of calls."""

    TAG = "[TOOL_CALLS]"

    def find(self, text: str, tools: Schemas) -> tuple[str, list[Call]]:
        """Split a text into its words and its calls in Mistral's format (see `Format.find`)."""
        before, tag, behind = text.partition(self.TAG)
        if not tag:
            return text, []
        return before, _list(behind.strip())

    def write(self, calls: Sequence[Call]) -> str:
        """Tool calls as text in Mistral's format."""
        return self.TAG + _dump([_named(call) for call in calls])


@FORMATS.register("pythonic")
class Pythonic(Format):
    """Tool-call format of Llama 4: a list of calls with keyword arguments in Python's syntax."""

    def find(self, text: str, tools: Schemas) -> tuple[str, list[Call]]:
        """Split a text into its words and its calls in Python's syntax (see `Format.find`)."""
        said = text.strip()
        if not _looks_pythonic(said, tools):
            return text, []
        body = _parsed(said)
        if not isinstance(body, ast.List):
            raise FaultError("shape", "not a list of calls")
        return "", [_python_call(each) for each in body.elts]

    def write(self, calls: Sequence[Call]) -> str:
        """Tool calls as text in Python's syntax."""
        texts = [f"{c.name}({', '.join(f'{key}={value!r}' for key, value in c.arguments.items())})" for c in calls]
        return f"[{', '.join(texts)}]"


@FORMATS.register("auto")
class Auto(Format):
    """Tool-call format that detects which format a text is in and parses it; calls are written as by `hermes`."""

    def find(self, text: str, tools: Schemas) -> tuple[str, list[Call]]:
        """Split a text into its words and its calls, by the format that the text looks like (see `Format.find`)."""
        if "<function=" in text or "</function>" in text:
            return Xml().find(text, tools)
        if "<invoke" in text or "</invoke>" in text or "<function_calls>" in text:
            return Invoke().find(text, tools)
        if Hermes.OPEN in text or Hermes.CLOSE in text:
            return Hermes().find(text, tools)
        if Mistral.TAG in text:
            return Mistral().find(text, tools)
        if LlamaFormat.TAG in text:
            return LlamaFormat().find(text, tools)
        if _looks_pythonic(text.lstrip(), tools):
            return Pythonic().find(text, tools)
        if re.search(r"\}\s*;\s*\{", text):
            return LlamaFormat().find(text, tools)
        return Json().find(text, tools)

    def write(self, calls: Sequence[Call]) -> str:
        """Tool calls as text in Hermes's tags."""
        return Hermes().write(calls)


def _number(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is no number of JSON")
    return number


_DECODER = json.JSONDecoder(parse_constant=_number, parse_float=_number)


def _value(text: str, start: int, calls: Iterable[Call] = ()) -> tuple[Any, int]:
    """The JSON value at a place, and where it ends. Raises FaultError."""
    at = len(text) - len(text[start:].lstrip())
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise FaultError("json", f"{error.msg} at character {error.pos}", calls) from None
    except ValueError as error:
        raise FaultError("json", str(error), calls) from None
    except RecursionError:
        raise FaultError("json", "nested too deeply", calls) from None


def _list(text: str) -> list[Call]:
    value, end = _value(text, 0)
    if text[end:].strip():
        raise FaultError("shape", f"{short(text[end:].strip())} behind the call")
    calls: list[Call] = []
    for each in value if isinstance(value, list) else [value]:
        calls.append(_call(each, calls))
    if not calls:
        raise FaultError("shape", "an empty list of calls")
    return calls


def _names(tools: Schemas) -> set[str]:
    return {str(function_of(tool).get("name")) for tool in tools}


def _looks_like_calls(text: str, tools: Schemas) -> bool:
    """Whether JSON has names with arguments, or the name of a tool that there is."""
    if text[:1] not in ("{", "["):
        return False
    if re.search(r'"(arguments|parameters)"\s*:', text) and re.search(r'"(name|function)"\s*:', text):
        return True
    return not _names(tools).isdisjoint(re.findall(r'"(?:name|function)"\s*:\s*"([^"]*)"', text))


def _looks_pythonic(text: str, tools: Schemas) -> bool:
    """Whether a list begins with a call, of a tool that there is or as no formula has it: f(x=3), f()."""
    found = re.match(r"\[\s*([\w.]+)\((\s*(?:\)|\w+\s*=(?!=)))?", text)
    return found is not None and (found[2] is not None or found[1] in _names(tools))


def _call(value: Any, calls: Iterable[Call]) -> Call:
    if isinstance(value, dict) and isinstance(value.get("function"), dict):  # as endpoints have it
        value = value["function"]
    if not isinstance(value, dict):
        raise FaultError("shape", f"{short(value)} is no object", calls)
    name = value.get("name", value.get("function"))
    if not isinstance(name, str) or not name.strip():
        raise FaultError("shape", "the name is missing" if name is None else f"the name is {short(name)}", calls)
    given = next((value[key] for key in ("arguments", "parameters") if key in value), None)
    if isinstance(given, str):
        given = _value(given, 0, calls)[0] if given.strip() else {}
    if not isinstance(given, dict | None):
        raise FaultError("shape", f"{name}: the arguments are {short(given)}, expected an object", calls)
    return Call(clean(name.strip()), given or {})


def _parsed(text: str) -> ast.expr:
    try:
        body = read(text).body
    except SyntaxError as error:
        raise FaultError("shape", f"not an expression: {error.msg}") from None
    if len(body) != 1 or not isinstance(body[0], ast.Expr):
        raise FaultError("shape", "not one expression")
    return body[0].value


def _python(text: str) -> Call:
    return _python_call(_parsed(text))


def _python_call(node: ast.expr) -> Call:
    if not isinstance(node, ast.Call) or node.args or any(each.arg is None for each in node.keywords):
        raise FaultError("shape", "not a call with keyword arguments")
    try:
        given = {str(each.arg): ast.literal_eval(each.value) for each in node.keywords}
        return Call(ast.unparse(node.func), json.loads(json.dumps(given, allow_nan=False)))
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):  # some tell an address in memory
        raise FaultError(
            "shape", "an argument is no plain value: a number, text in quotes, or a list of them"
        ) from None


def _named(call: Call) -> dict[str, Any]:
    return {"name": call.name, "arguments": dict(call.arguments)}


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)  # as chat templates do
