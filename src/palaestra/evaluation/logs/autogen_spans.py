"""AutoGen's own spans: a trace for each message between agents, put together to the conversation that they are.

The runtime's spans (`autogen process …`) hold each message as it was delivered; a span of an agent (`invoke_agent`) has
no words. So an agent was asked what was delivered to it before it began, and its n-th span said its n-th message.
Topics and agents have the key of their team in their names: it makes an episode, or one for each start of a group chat.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from palaestra.evaluation.logs.messages import of_autogen
from palaestra.evaluation.logs.prompts import LoggedMessage, message_of, parsed
from palaestra.evaluation.logs.rows import items, mapping, text
from palaestra.evaluation.logs.spans import Span
from palaestra.evaluation.logs.usage import tokens

_DESTINATION = re.compile(r"(.+)\.\((.+)\)-[AT]")
_START = "GroupChatStart"
_INNER = ("ToolCallRequestEvent",)
"""Events of an agent before its answer."""


def is_autogen(attributes: Mapping[str, Any]) -> bool:
    """Whether span attributes are AutoGen's: of an agent, or of its runtime."""
    return attributes.get("gen_ai.system") == "autogen" or "messaging.destination" in attributes


def note(span: Span, attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Sets `conversation` of an AutoGen `Span` by attributes, in place, empties `metadata`; returns messages delivered.

    The span is changed in place; the messages are those that it delivers.
    """
    span.metadata = {}
    if span.kind == "agent":
        identity = text(attributes.get("gen_ai.agent.id") or "")
        span.conversation = identity.partition("/")[2] or None
    found = _DESTINATION.fullmatch(text(attributes.get("messaging.destination") or ""))
    if found is None:
        return []
    span.conversation = found[2]
    if attributes.get("messaging.message.type") == _START and found[0].endswith("-A"):
        span.name = _START
    if attributes.get("messaging.operation") != "process":
        return []
    span.name = found[1].removesuffix(f"_{found[2]}")
    try:
        message = mapping(parsed(attributes.get("message")))
    except (ValueError, RecursionError):
        return []
    response = mapping(message.get("response"))
    said = [each for each in items(response.get("inner_messages")) if mapping(each).get("type") in _INNER]
    said += [response["chat_message"]] if response.get("chat_message") else items(message.get("messages"))
    return [dict(each) for each in said if isinstance(each, Mapping)]


def weave(spans: Sequence[Span], delivered: Sequence[tuple[Span, list[dict[str, Any]]]]) -> None:
    """Adds to AutoGen agents' `Span`s, in place, what they got and sent, from `delivered`: (span, messages) pairs."""
    _by_start(spans)
    boxes: dict[tuple[str | None, str | None], list[tuple[int, LoggedMessage]]] = defaultdict(list)
    sent: dict[tuple[str | None, str], dict[str, list[dict[str, Any]]]] = defaultdict(dict)
    for span, many in sorted(delivered, key=lambda pair: pair[0].start or 0):
        for raw in many:
            chat = of_autogen(raw)
            message = None if chat is None else message_of(chat)
            if message is not None and raw.get("type") not in _INNER:
                boxes[span.conversation, span.name].append((span.start or 0, message))
        if many and (source := text(many[-1].get("source") or "")) != "user":
            sent[span.conversation, source].setdefault(text(many[-1].get("id") or len(sent)), many)
    runs: dict[tuple[str | None, str | None], list[Span]] = defaultdict(list)
    for span in spans:
        if span.kind == "agent" and span.prompt is None and span.conversation is not None:
            runs[span.conversation, span.name].append(span)
    for (conversation, name), own in runs.items():
        answers = list(sent.get((conversation, name or ""), {}).values())
        box = boxes.get((conversation, name), [])
        times = [time for time, _ in box]
        for number, span in enumerate(sorted(own, key=lambda each: each.start or 0)):
            if box:
                span.prompt = [message for _, message in box[: bisect_right(times, span.start or 0)]]
            if number < len(answers):
                _say(span, answers[number])


def _by_start(spans: Sequence[Span]) -> None:
    """Number the starts of a team that was started several times; each of its spans is of the last start before it."""
    starts: dict[str | None, list[int]] = defaultdict(list)
    for span in spans:
        if span.kind == "other" and span.name == _START and span.start is not None:
            starts[span.conversation].append(span.start)
    for times in starts.values():
        times.sort()
    for span in spans:
        if len(times := starts.get(span.conversation, [])) > 1 and span.start is not None:
            span.conversation = f"{span.conversation}, start {bisect_right(times, span.start)}"


def _say(span: Span, said: Sequence[dict[str, Any]]) -> None:
    chats = [message_of(chat) for raw in said if (chat := of_autogen(raw)) is not None]
    calls = tuple(call for each in chats if each is not None for call in each.calls)
    last = chats[-1] if chats else None
    span.said = None if last is None else last._replace(calls=calls)
    used = [tokens(raw.get("models_usage")) for raw in said]
    names = dict.fromkeys(name for each in used for name in each)
    span.usage = {name: sum(each.get(name, 0) for each in used) for name in names}
