"""Reads the answer out of a chat model's reply: a field of JSON, a last line `Answer: …`, a box, or all of it.

Policies that were trained to say nothing but the answer are read as before: what has none of these forms is the answer.
Left out: repair of broken JSON, and judges' verdicts (`palaestra.judges.reading`).
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

FORMS = ("json", "line", "boxed", "whole")
"""Where an answer stood in its reply."""
THINKS, THOUGHT = "<think>", "</think>"


class Reply(NamedTuple):
    """Data of an answer extracted from a model's reply: its text, where it was found, and the reply without thinking.

    Attributes:
        text: The answer, without outer white space.
        form: Where it stood, one of `FORMS`.
        shown: What others may read of the reply: all of it but the model's private thinking.
    """

    text: str
    form: str
    shown: str


def read_reply(text: str, field: str = "answer", until: Sequence[str] | None = None) -> Reply:
    r"""Extracts the answer of a model's reply as a `Reply`: a JSON field, a line `Answer: …`, \boxed, or the whole.

    Args:
        text: What the model said.
        field: Name of the JSON field, or of the line, in any case: `answer`, `action`, `bid`.
        until: Of prose: fields whose lines end it; without one it goes to the end of the reply. None: it is one line,
            or the fenced block that begins there.

    >>> read_reply("3 and 4 make 7.\n**Answer:** 7")[:2]
    ('7', 'line')
    >>> read_reply("Step: Let x = 4.\nThen x + 3 = 7.\nConfidence: 0.9", "step", until=["confidence"]).text
    'Let x = 4.\nThen x + 3 = 7.'
    >>> read_reply('{"reasoning": "3 + 4", "answer": 7}')[:2]
    ('7', 'json')
    >>> read_reply("So it is $\\boxed{\\frac{1}{2}}$.")[:2]
    ('\\frac{1}{2}', 'boxed')
    >>> read_reply("7")[:2]
    ('7', 'whole')
    """
    said = without_thinking(text)
    if ":" not in said and "\\boxed{" not in said:  # most replies of small policies
        return Reply(said, "whole", said)
    if (found := _of_json(said, field)) is not None:
        answer = found.pop(field)
        return Reply(answer, "json", "\n".join([*filter(None, found.values()), f"{field.capitalize()}: {answer}"]))
    line, block, at = None, None, 0
    while following := _line(field).search(said, at):
        line, block = following, _BLOCK.match(said, following.end())
        at = (block or line).end()
    if line is not None:
        answer = said[line.end() :]
        opened = _opened(line[0])
        if until is not None:
            ends = [ended.start() for name in until if (ended := _line(name).search(answer))]
            return Reply(_bare(answer[: min(ends, default=len(answer))], opened, prose=True), "line", said)
        if block:
            return Reply(block[1].strip(), "line", said)
        first = answer.partition("\n")[0]
        return Reply(_bare(first if first.strip(" \t*_`") else answer, opened), "line", said)
    if (boxed := _boxed(said)) is not None:
        return Reply(boxed, "boxed", said)
    return Reply(said, "whole", said)


def without_thinking(text: str) -> str:
    """The text of a reply behind its thinking, stripped; empty if the thinking was cut off before its end.

    >>> without_thinking("<think>41? No.</think> 42"), without_thinking("<think>41? Or")
    ('42', '')
    """
    said = text.rpartition(THOUGHT)[2].strip()
    return "" if said.startswith(THINKS) else said


def bare_name(text: str) -> str:
    """A name as it is called, without white space, quotes, emphasis and a full stop at its end.

    >>> [bare_name(each) for each in ("left.", "`left`", '**"left"**.')]
    ['left', 'left', 'left']
    """
    return text.strip(_AROUND).removesuffix(".").strip(_AROUND)


_AROUND = " \t\n\r*_`'\"“”‘’"


def schema(fields: Sequence[str], choices: Sequence[str] = ()) -> Mapping[str, Any]:
    """JSON schema, as dict, of a reply: an object of texts, `reasoning` and each of `fields`, the last in `choices`.

    >>> schema(["bid"])["required"]
    ['reasoning', 'bid']
    """
    properties: dict[str, Any] = {name: {"type": "string"} for name in ("reasoning", *fields)}
    if choices:
        properties[fields[-1]]["enum"] = list(choices)
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _of_json(said: str, field: str) -> dict[str, str] | None:
    """Texts of the last JSON object that has the field, in a fence or not; with a comma behind the last entry, too."""
    if "{" not in said or f'{field}"' not in said.casefold():
        return None
    begun = said[said.find("{") :]
    return _last_object(said, field) or _last_object(_COMMA.sub(lambda found: found[1] or "", begun), field)


def _last_object(said: str, field: str) -> dict[str, str] | None:
    decoder, found = json.JSONDecoder(), None
    at = said.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(said, at)
        except (ValueError, RecursionError):
            value, end = None, at + 1
        if isinstance(value, dict):
            named = {_name(str(name), field): _text(each) for name, each in value.items()}
            found = named if field in named else found
        at = said.find("{", end)
    return found


_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])')
"""A text, or a comma behind the last entry of an object or a list."""


def _name(name: str, field: str) -> str:
    """Name of an entry in lower case; `final_answer` is `answer`, as on a line."""
    bare = name.casefold()
    return field if re.fullmatch(rf"(?:the[ _])?final[ _-]?{re.escape(field)}", bare) else bare


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return value.strip() if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@functools.lru_cache(64)
def _line(field: str) -> re.Pattern[str]:
    """Begin of a line that names the field: `Answer:`, `**Final answer**:`, `> answer:`."""
    return re.compile(rf"(?im)^[ \t>*_`#-]*(?:the[ \t]+)?(?:final[ \t]+)?{re.escape(field)}[ \t*_`]*[:：]")


_BLOCK = re.compile(r"[\s*_]*```[\w+#.-]*[ \t]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)
"""Fenced lines, of which an answer that was cut off lacks the end."""


_EMPHASIS = re.compile(r"(?!__\w+__\.?\Z)(\*{1,3}|_{1,3}|`{1,2})((?:(?!\1).)+)\1\.?", re.DOTALL)
"""All of an answer between equal marks; `__init__` is a name."""


def _opened(begin: str) -> str:
    """Marks that the begin of a line leaves open: of `**Answer:` two stars, of `**Answer**:` none."""
    if begin.rstrip(":： \t").endswith(("*", "_", "`")):
        return ""
    before = re.split(r"[^\W_]", begin, maxsplit=1)[0]
    return before[len(before.rstrip("*_`")) :]


def _bare(answer: str, opened: str, *, prose: bool = False) -> str:
    """Without emphasis, and without the fence around several lines; of lines of prose nothing else is taken out."""
    answer = answer.strip()
    shut, ended = opened[::-1], answer.removesuffix(".")
    if shut and not _EMPHASIS.fullmatch(answer):
        begins, ends = answer.startswith(shut), ended.endswith(shut)
        answer = (answer.removeprefix(shut) if begins else ended.removesuffix(shut) if ends else answer).strip()
    if fenced := re.fullmatch(r"```(?:[\w-]*\n)?(.*?)\n?```", answer, re.DOTALL):
        return fenced[1].strip()
    while found := _EMPHASIS.fullmatch(answer):
        answer = found[2].strip()
    if "\\boxed{" in answer and not (prose and "\n" in answer):
        return _boxed(answer) or answer
    return answer


def _boxed(said: str) -> str | None:
    r"""Inside of the last `\boxed{…}` whose brackets close."""
    start = said.rfind("\\boxed{")
    if start < 0:
        return None
    depth = 0
    for at in range(start + len("\\boxed"), len(said)):
        depth += {"{": 1, "}": -1}.get(said[at], 0)
        if not depth:
            return said[start + len("\\boxed{") : at].strip()
    return None
