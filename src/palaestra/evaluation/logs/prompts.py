"""Messages of model calls, in the form of every framework, as one form that can be compared.

Read are OpenTelemetry's parts, OpenAI's chat messages and response items, Anthropic's blocks, and LangChain's messages
however they are serialised. What nobody hears (reasoning) is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from palaestra.algebra.turns import clean
from palaestra.evaluation.logs.messages import content_text
from palaestra.evaluation.logs.rows import items, mapping, text

_ROLES = {"ai": "assistant", "human": "user", "model": "assistant", "developer": "system", "function": "tool"}
_LANGCHAIN = {"AIMessage": "assistant", "HumanMessage": "user", "SystemMessage": "system", "ToolMessage": "tool"}
_OF_PLAIN = frozenset(("role", "content", "parts", "name", "finish_reason"))
_TEXTS = ("text", "input_text", "output_text", "refusal")
_UNHEARD = ("reasoning", "thinking", "redacted_thinking", "reasoning_content")
_CALLS = ("tool_call", "tool_use", "function_call", "server_tool_call")
_ANSWERS = ("tool_call_response", "tool_result", "function_call_output", "server_tool_call_response")


class LoggedCall(NamedTuple):
    """Data of a tool call in a message: id (None if not logged), tool name and arguments."""

    id: str | None
    name: str
    arguments: Any


class LoggedMessage(NamedTuple):
    """Data of one chat message of a log: role, text, the agent's name, calls that it makes and ids that it answers.

    name: of the agent that said it. answers: the calls that it answers.
    """

    role: str
    text: str | None = None
    name: str | None = None
    calls: tuple[LoggedCall, ...] = ()
    answers: tuple[str, ...] = ()


def conversation(value: Any, *, role: str = "user") -> list[LoggedMessage]:
    """Parses a logged prompt or answer (a list of messages, one, or a text) into a list of `LoggedMessage`.

    role: whose a message is that does not say it.

    >>> conversation([{"role": "user", "parts": [{"type": "text", "content": "1 + 1?"}], "name": "ann"}])
    [LoggedMessage(role='user', text='1 + 1?', name='ann', calls=(), answers=())]
    """
    if value is None:
        return []
    if isinstance(value, Mapping):
        inner = value.get("messages", value.get("input"))
        if "role" not in value and "type" not in value and isinstance(inner, list | str):
            return conversation(inner, role=role)
        value = [value]
    if not isinstance(value, list | tuple):
        return [LoggedMessage(role, text(value))]
    found: list[LoggedMessage] = []
    for each in value:
        if isinstance(
            each, list
        ):  # LangChain asks for several prompts at a time, and answers with lists of generations
            found += conversation(each, role=role)
        elif (message := message_of(each, role)) is not None:
            found.append(message)
    return found


def message_of(raw: Any, role: str = "user") -> LoggedMessage | None:
    """Converts a raw chat message to a `LoggedMessage`; None for internal kinds that no agent reads."""
    if not isinstance(raw, Mapping):
        return LoggedMessage(role, text(raw))
    if (plain := _plain(raw)) is not None:
        return plain
    kind = raw.get("type")
    if kind in _UNHEARD:
        return None
    if isinstance(raw.get("message"), Mapping):  # one of several that a model offers
        return message_of(raw["message"], role)
    inner: Mapping[str, Any] = mapping(raw.get("kwargs")) or mapping(raw.get("data")) or raw
    names = items(raw.get("id"))
    said = _LANGCHAIN.get(str(names[-1]).removesuffix("Chunk")) if names else None
    said = said or inner.get("role") or raw.get("role") or inner.get("type") or kind
    whose = _ROLES.get(said, said) if isinstance(said, str) else role
    if whose not in ("user", "assistant", "system", "tool"):
        whose = "assistant" if kind in _CALLS else "tool" if kind in _ANSWERS else role
    name = inner.get("name") if kind not in _CALLS else None
    calls, answers, words = _blocks(inner)
    calls += [call for each in items(inner.get("tool_calls")) if (call := _call(each))]
    if not calls and (call := _call(inner.get("function_call"))):
        calls = [call]
    if (answered := inner.get("tool_call_id")) is not None:
        answers.append(text(answered))
        name = None  # a tool's name is no agent's
    return LoggedMessage(whose, words, None if name is None else text(name), tuple(calls), tuple(answers))


def _plain(raw: Mapping[str, Any]) -> LoggedMessage | None:
    """A message of one text in OpenAI's or OpenTelemetry's form: most of every log, and a tenth of the time."""
    said, words, name = raw.get("role"), raw.get("content"), raw.get("name")
    parts = raw.get("parts")
    if type(parts) is list and len(parts) == 1 and type(parts[0]) is dict and parts[0].get("type") == "text":
        words = parts[0].get("content")
    if said not in ("user", "assistant", "system") or type(words) is not str or not raw.keys() <= _OF_PLAIN:
        return None
    return LoggedMessage(said, clean(words), name if name is None else text(name))


def _blocks(message: Mapping[str, Any]) -> tuple[list[LoggedCall], list[str], str | None]:
    """Calls, answered calls and words in the parts, blocks or content of a message, or in a message that is one."""
    parts = message.get("parts", message.get("content"))
    if message.get("type") in (*_CALLS, *_ANSWERS):
        parts = [message]
    if not isinstance(parts, list):
        return [], [], content_text(parts)
    calls, answers, words = [], [], []
    for part in parts:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if not isinstance(part, Mapping):
            words.append(text(part))
        elif kind in _UNHEARD:
            continue
        elif kind in _CALLS or "function_call" in part:
            calls += [call] if (call := _call(part)) else []
        elif kind in _ANSWERS:
            found = next((part[key] for key in ("tool_use_id", "call_id", "id") if part.get(key) is not None), None)
            answers += [] if found is None else [text(found)]
            result = next((part[key] for key in ("response", "result", "output", "content") if key in part), None)
            words.append(content_text(result) or "")
        elif kind in _TEXTS or "text" in part or isinstance(part.get("content"), str):
            words.append(text(part.get("text", part.get("content", part.get("refusal", "")))))
        else:
            words.append(content_text([part]) or "")
    return calls, answers, "\n".join(words) if words else None


def _call(raw: Any) -> LoggedCall | None:
    if not isinstance(raw, Mapping):
        return None
    inner = mapping(raw.get("function")) or mapping(raw.get("tool_call")) or mapping(raw.get("function_call")) or raw
    name = inner.get("name")
    if name is None:
        return None
    arguments = next((inner[key] for key in ("arguments", "args", "input") if inner.get(key) is not None), None)
    identity = next((raw[key] for key in ("call_id", "id") if raw.get(key) is not None), inner.get("id"))
    return LoggedCall(None if identity is None else text(identity), text(name), arguments)


def parsed(value: Any) -> Any:
    """The value, decoded if it is a text that holds a JSON list or object, as in span attributes; else unchanged.

    Raises:
        ValueError: The text begins as a list or object of JSON does and is none.
    """
    if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{"):
        return value
    return json.loads(value)


def words_of(messages: Sequence[LoggedMessage]) -> str | None:
    """The texts of a list of `LoggedMessage` joined by line breaks; None if there is none."""
    return "\n".join(each.text for each in messages if each.text) or None
