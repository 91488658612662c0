"""Attributes of OpenTelemetry spans by the conventions for generative AI, old and new, and by their dialects.

Understood: the semantic conventions from 1.28 on (messages as events, then as attributes), OpenLLMetry's and
OpenInference's numbered attributes, and Langfuse's. A span that says nothing of what it is, is of the kind "other".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from palaestra.evaluation.logs.prompts import LoggedCall, LoggedMessage, conversation, message_of, parsed
from palaestra.evaluation.logs.rows import mapping, text
from palaestra.evaluation.logs.spans import Kind, Span, facts_of, own_name
from palaestra.evaluation.logs.usage import tokens

_OPERATIONS: dict[str, Kind] = {
    "chat": "model",
    "text_completion": "model",
    "generate_content": "model",
    "response": "model",
    "invoke_agent": "agent",
    "execute_tool": "tool",
}
_KINDS: dict[str, Kind] = {
    "llm": "model",
    "generation": "model",
    "agent": "agent",
    "tool": "tool",
    "chat": "model",
    "completion": "model",
}
_KIND = (
    "openinference.span.kind",
    "traceloop.span.kind",
    "langfuse.observation.type",
    "llm.request.type",
    "ag2.span.type",
)
_AGENT = ("gen_ai.agent.name", "agent.name", "agent_name", "graph.node.id")
_TOOL = ("gen_ai.tool.name", "tool.name", "traceloop.entity.name")
_MODEL = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name", "langfuse.observation.model.name")
_COST = ("gen_ai.usage.cost", "gen_ai.usage.total_cost", "llm.cost.total", "operation.cost")
_CONVERSATION = ("gen_ai.conversation.id", "session.id", "langfuse.session.id")
_INPUT = ("gen_ai.input.messages", "gen_ai.prompt", "langfuse.observation.input")
_OUTPUT = ("gen_ai.output.messages", "gen_ai.completion", "langfuse.observation.output")
_NUMBERED = (("gen_ai.prompt.", "gen_ai.completion."), ("llm.input_messages.", "llm.output_messages."))
_EVENT = re.compile(r"gen_ai\.(system|user|assistant|tool)\.message|gen_ai\.choice")
_DETAILS = "gen_ai.client.inference.operation.details"
_USAGE = {"prompt_tokens": ("gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
          "completion_tokens": ("gen_ai.usage.completion_tokens", "llm.token_count.completion"),
          "input_tokens": ("gen_ai.usage.input_tokens",), "output_tokens": ("gen_ai.usage.output_tokens",),
          "cache_read": ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens",
                         "llm.token_count.prompt_details.cache_read"),
          "cache_write": ("gen_ai.usage.cache_write.input_tokens", "gen_ai.usage.cache_creation.input_tokens",
                          "gen_ai.usage.cache_creation_input_tokens",
                          "llm.token_count.prompt_details.cache_write")}  # fmt: skip
Event = tuple[str, Mapping[str, Any]]
"""Name and attributes (with the body's fields) of an event."""


def describe(
    span: Span, attributes: Mapping[str, Any], events: Sequence[Event], resource: Mapping[str, Any]
) -> list[str]:
    """Fills in a `Span`, in place, from its attributes, events and resource; returns texts of what was unreadable."""
    wrong: list[str] = []
    name = span.name or ""
    span.kind = kind_of(attributes)
    span.model = _text(first(attributes, _MODEL))
    span.agent = _text(first(attributes, _AGENT))
    if span.kind == "agent":
        entity = attributes.get("traceloop.entity.name")
        span.name = span.agent or _text(entity) or name.removeprefix("invoke_agent ").strip() or None
    elif span.kind == "tool":
        span.name = _text(first(attributes, _TOOL)) or name.removeprefix("execute_tool ")
        span.call = _text(attributes.get("gen_ai.tool.call.id", attributes.get("tool_call.id")))
        span.arguments = first(
            attributes,
            (
                "gen_ai.tool.call.arguments",
                "tool.parameters",
                "input.value",
                "traceloop.entity.input",
                "langfuse.observation.input",
            ),
        )
    if span.kind in ("model", "agent"):
        _speak(span, attributes, events, wrong)
        span.usage = _usage(attributes) if span.kind == "model" or span.prompt is not None else {}
        span.cost = first(attributes, _COST)
        if span.cost is None and isinstance(costs := _read(attributes, "langfuse.observation.cost_details", []), dict):
            span.cost = costs.get("total")
    span.conversation = _text(first(attributes, _CONVERSATION))
    span.facts = facts_of(attributes)
    if span.parent is not None and "task" not in map(own_name, attributes):
        span.facts.pop("task", None)  # within a trace `task_id` is a step's, as CrewAI's
    if span.parent is None or span.facts:
        span.facts = facts_of(attributes, resource)
        service = _text(resource.get("service.name"))
        if service is not None and not service.startswith("unknown_service"):
            span.facts.setdefault("system", service)
    if attributes.get("langfuse.observation.level") == "ERROR":
        span.error = _text(attributes.get("langfuse.observation.status_message")) or "error"
    for event, said in events:
        if event == "gen_ai.evaluation.result":
            _grade(span, said)
        elif event == "exception" and span.error is not None:
            span.error = _text(said.get("exception.message")) or span.error
    return wrong


def kind_of(attributes: Mapping[str, Any]) -> Kind:
    """Kind of a span by its attributes, "agent", "model", "tool" or "other"; the first known convention counts."""
    operation = attributes.get("gen_ai.operation.name")
    if isinstance(operation, str):
        return _OPERATIONS.get(operation, "other")
    for name in _KIND:
        if isinstance(kind := attributes.get(name), str):
            return _KINDS.get(kind.casefold(), "other")
    return "model" if "gen_ai.request.model" in attributes and "gen_ai.usage.output_tokens" in attributes else "other"


def first(attributes: Mapping[str, Any], names: Iterable[str]) -> Any:
    """Value of the first of several named attributes that is present and not None; None without."""
    return next((attributes[name] for name in names if attributes.get(name) is not None), None)


def _speak(span: Span, attributes: Mapping[str, Any], events: Sequence[Event], wrong: list[str]) -> None:
    """Prompt and answer, from attributes, else from events, else from numbered attributes."""
    told = dict(attributes)
    for event, fields in events:
        if event in (_DETAILS, "gen_ai.content.prompt", "gen_ai.content.completion"):
            told |= {key: value for key, value in fields.items() if key not in told}
    before = conversation(_read(told, "gen_ai.system_instructions", wrong), role="system")
    asked = next((value for name in _INPUT if (value := _read(told, name, wrong)) is not None), None)
    answered = next((value for name in _OUTPUT if (value := _read(told, name, wrong)) is not None), None)
    prompt = None if asked is None else before + conversation(asked)
    said = [] if answered is None else conversation(answered, role="assistant")
    for event, fields in events if asked is None else ():
        if found := _EVENT.fullmatch(event):
            message = message_of(mapping(fields.get("message")) or fields, found[1] or "assistant")
            if message is not None and found[1]:
                prompt = [*(prompt or []), message]
            elif message is not None:
                said.append(message)
    for inputs, outputs in _NUMBERED:
        prompt = (_numbered(told, inputs) or None) if prompt is None else prompt
        said = said or _numbered(told, outputs)
    span.prompt, span.said = prompt, joined(said)
    if span.kind == "agent" and not said and isinstance(output := _read(told, "output.value", wrong), Mapping):
        raw = output.get("raw")  # of CrewAI's task
        span.said = LoggedMessage("assistant", text(raw)) if raw is not None else None


def joined(said: Sequence[LoggedMessage]) -> LoggedMessage | None:
    """One assistant `LoggedMessage` of texts and calls of the assistant, or of all if it has none; None of none."""
    said = [each for each in said if each.role == "assistant"] or list(said)
    if not said:
        return None
    words = [each.text for each in said if each.text]
    calls = tuple(call for each in said for call in each.calls)
    return LoggedMessage("assistant", "\n".join(words) or None, said[0].name, calls)


def _numbered(attributes: Mapping[str, Any], prefix: str) -> list[LoggedMessage]:
    """Messages that are spread over attributes: `gen_ai.prompt.0.role`, `llm.input_messages.0.message.content`."""
    found: dict[int, dict[str, Any]] = {}
    for key, value in attributes.items():
        number, _, name = key.removeprefix(prefix).partition(".") if key.startswith(prefix) else ("", "", "")
        if number.isdecimal():
            found.setdefault(int(number), {})[name.removeprefix("message.")] = value
    messages = []
    for _, fields in sorted(found.items()):
        calls: dict[str, dict[str, Any]] = {}
        for key, value in fields.items():
            if key.startswith("tool_calls."):
                place, _, name = key.removeprefix("tool_calls.").partition(".")
                calls.setdefault(place, {})[name.rpartition(".")[2]] = value
        made = tuple(
            LoggedCall(_text(c.get("id")), text(c["name"]), c.get("arguments")) for c in calls.values() if "name" in c
        )
        role = "assistant" if prefix in ("gen_ai.completion.", "llm.output_messages.") else fields.get("role", "user")
        message = message_of({"role": role, "name": fields.get("name"), "content": fields.get("content")})
        if message is not None:
            answers = (text(fields["tool_call_id"]),) if fields.get("tool_call_id") is not None else ()
            messages.append(message._replace(calls=made, answers=answers))
    return messages


def _read(attributes: Mapping[str, Any], name: str, wrong: list[str]) -> Any:
    try:
        return parsed(attributes.get(name))
    except (ValueError, RecursionError) as error:
        wrong.append(f"{name} is not JSON ({str(error)[:80]}); these messages are left out")
        return None


def _usage(attributes: Mapping[str, Any]) -> dict[str, Any]:
    said = {ours: first(attributes, names) for ours, names in _USAGE.items()}
    said = {name: value for name, value in said.items() if isinstance(value, int) and not isinstance(value, bool)}
    whole = said.pop("input_tokens", None)
    read, written = said.pop("cache_read", None), said.pop("cache_write", None)
    if whole is not None:  # the conventions count cached ones in
        said["prompt_tokens"] = whole
    found = tokens(said) or langfuse_usage(_read(attributes, "langfuse.observation.usage_details", []))
    return found | {k: v for k, v in (("tokens_cached", read), ("tokens_cache_write", written)) if v is not None}


def langfuse_usage(details: Any) -> dict[str, Any]:
    """Dict of token counts under the names of this library, from Langfuse's usage names or a provider's.

    Langfuse counts `input_cache_read`, `output_reasoning` and the like apart from `input` and `output`, unless its
    total says otherwise.

    >>> langfuse_usage({"input": 100, "input_cache_read": 900, "output": 50, "output_reasoning": 450, "total": 1500})
    {'tokens_in': 1000, 'tokens_cached': 900, 'tokens_out': 500}
    """
    if not isinstance(details, Mapping):
        return {}
    counts = {str(k): v for k, v in details.items() if isinstance(v, int) and not isinstance(v, bool) and v >= 0}

    def under(*prefixes: str) -> int | None:
        provider = ("input_tokens", "output_tokens")
        found = [n for name, n in counts.items() if name.startswith(prefixes) and name not in provider]
        return sum(found) if found else None

    asked, said, total = (counts.get(name) for name in ("input", "output", "total"))
    more, beside = under("input_") if asked is not None else None, under("output_") if said is not None else None
    apart = [(more or 0, beside or 0), (0, 0), (more or 0, 0), (0, beside or 0)]
    fits = (each for each in apart if sum(each) + (asked or 0) + (said or 0) == total)
    into, out = next(fits, apart[0])
    ours = {
        "prompt_tokens": None if asked is None or more is None else asked + into,
        "input_tokens": asked,
        "output_tokens": None if said is None else said + out,
        "total_tokens": total,
        "input_tokens_cache_read": under("input_cache_read", "input_cached"),
        "input_tokens_cache_write": under("input_cache_creation", "input_cache_write"),
    }
    return tokens({name: value for name, value in ours.items() if value is not None} | dict(details))


def _grade(span: Span, said: Mapping[str, Any]) -> None:
    """An evaluation's result: a score by its name, and success where its label says pass or fail."""
    name = _text(said.get("gen_ai.evaluation.name")) or "evaluation"
    value, label = said.get("gen_ai.evaluation.score.value"), said.get("gen_ai.evaluation.score.label")
    if value is not None:
        span.scores[name] = value
        span.facts.setdefault("score", value)
    if label is not None and (graded := facts_of({"success": label})):
        span.facts.setdefault("success", graded["success"])


def _text(value: Any) -> str | None:
    return None if value is None else text(value)
