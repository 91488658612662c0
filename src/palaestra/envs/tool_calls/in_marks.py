"""Formats whose calls stand between marks, as in XML; the values of arguments are text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from palaestra.envs.tool_calls.formats import FORMATS, Call, FaultError, Format, Schemas, function_of, short, types_of


class _Marked(Format):
    """Calls between marks, arguments between marks; values are text, read as what the tool's schema says."""

    call: str
    parameter: str
    around: tuple[str, ...]

    def find(self, text: str, tools: Schemas) -> tuple[str, list[Call]]:
        """See `Format`."""
        beside: list[str] = []
        calls: list[Call] = []
        at = 0
        end = re.findall(r"</\w+>", self.call)[0]
        for found in re.finditer(self.call, text, re.DOTALL):
            beside.append(text[at : found.start()])
            at, name, body = found.end(), found["name"].strip(), found["body"]
            arguments, left = {}, body
            for each in re.finditer(self.parameter, body, re.DOTALL):
                key = each["name"].strip()
                if key in arguments:
                    raise FaultError("shape", f"{name}: {key!r} twice", calls)
                arguments[key] = _typed(each["value"], _schema(tools, name, key))
                left = left.replace(each[0], "", 1)
            if left.strip():
                raise FaultError("shape", f"{name}: {short(left.strip())} is no parameter", calls)
            if not name:
                raise FaultError("shape", "a call without a name", calls)
            calls.append(Call(name, arguments))
        beside.append(text[at:])
        rest = re.sub("|".join(map(re.escape, self.around)), "", "".join(beside))
        begin = end.replace("</", "<").rstrip(">")
        if re.search(re.escape(begin) + r"[\s=>]", rest):
            raise FaultError("unclosed", f"{begin}…> without {end}", calls)
        if end in rest:
            raise FaultError("unopened", f"{end} without {begin}…>", calls)
        if not calls and any(mark in text for mark in self.around):
            raise FaultError("shape", f"{self.around[0]} with no call in it")
        return rest, calls


@FORMATS.register("xml")
class Xml(_Marked):
    """Tool-call format of Qwen3-Coder: <function=NAME> with <parameter=KEY> inside <tool_call>."""

    call = r"<function=(?P<name>[^>\n]*)>(?P<body>.*?)</function>"
    parameter = r"<parameter=(?P<name>[^>\n]*)>\n?(?P<value>.*?)\n?</parameter>"
    around = ("<tool_call>", "</tool_call>")

    def write(self, calls: Sequence[Call]) -> str:
        """Tool calls as text in this class's XML."""
        return "\n".join(
            f"<tool_call>\n<function={call.name}>\n"
            + "".join(f"<parameter={key}>\n{_text(value)}\n</parameter>\n" for key, value in call.arguments.items())
            + "</function>\n</tool_call>"
            for call in calls
        )


@FORMATS.register("invoke")
class Invoke(_Marked):
    """Tool-call format of Claude: <invoke name="NAME"> with <parameter name="KEY"> inside <function_calls>."""

    call = r'<invoke name="(?P<name>[^">\n]*)">(?P<body>.*?)</invoke>'
    parameter = r'<parameter name="(?P<name>[^">\n]*)">(?P<value>.*?)</parameter>'
    around = ("<function_calls>", "</function_calls>")

    def write(self, calls: Sequence[Call]) -> str:
        """Tool calls as text in this class's marks."""
        inside = "\n".join(
            f'<invoke name="{call.name}">\n'
            + "".join(f'<parameter name="{key}">{_text(value)}</parameter>\n' for key, value in call.arguments.items())
            + "</invoke>"
            for call in calls
        )
        return f"<function_calls>\n{inside}\n</function_calls>"


def _typed(text: str, schema: Mapping[str, Any] | None) -> Any:
    """A value from its text: as the schema says; without one, what is JSON is read, all else is text."""
    types = () if schema is None else types_of(schema)
    if schema is not None and (not types or "string" in types):
        return None if "null" in types and text.strip() == "null" else text
    try:
        value = json.loads(text.strip(), parse_constant=_no_number)
    except (ValueError, RecursionError):
        return text
    return text if schema is None and isinstance(value, str) else value


def _schema(tools: Schemas, name: str, key: str) -> Mapping[str, Any] | None:
    for tool in tools:
        function = function_of(tool)
        if function.get("name") == name:
            found = ((function.get("parameters") or {}).get("properties") or {}).get(key)
            return found if isinstance(found, Mapping) else {}
    return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _no_number(constant: str) -> Any:
    raise ValueError(constant)
