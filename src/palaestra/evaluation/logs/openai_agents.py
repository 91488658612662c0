"""Traces of the OpenAI Agents SDK: `item.export()` of every trace and span per line, or bodies of its own exporter.

A body is an object with the items in `data`. Task, success and score are read from a trace's metadata; traces with one
`group_id` are one conversation. Spans of the kind `response` keep no words, those of `generation` do; without them, who
heard whom is known by the order alone. A run whose outermost agent fails is an episode with an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palaestra.evaluation.logs.files import Documents
from palaestra.evaluation.logs.genai import joined
from palaestra.evaluation.logs.prompts import conversation
from palaestra.evaluation.logs.readers import READERS, LogReader
from palaestra.evaluation.logs.rows import Rows, items, mapping, text
from palaestra.evaluation.logs.spans import Kind, Span, facts_of, nanoseconds
from palaestra.evaluation.logs.traces import add_episodes
from palaestra.evaluation.logs.usage import tokens

_KINDS: dict[str, Kind] = {"agent": "agent", "generation": "model", "response": "model", "function": "tool"}
_ROOT = "trace"
_ITEMS = ("trace", "trace.span")


@READERS.register("openai_agents")
def openai_agents() -> LogReader:
    """Makes the `LogReader` of traces of the OpenAI Agents SDK."""
    return LogReader(read, fits=fits, trace=True)


def fits(record: dict[str, Any]) -> bool:
    """Whether a JSON object is the OpenAI Agents SDK's: an item of a trace, or a body with some."""
    return record.get("object") in _ITEMS or any(mapping(e).get("object") in _ITEMS for e in items(record.get("data")))


def read(found: Documents, rows: Rows) -> None:
    """Adds an episode per trace of `found`, (place, JSON object) pairs, to `Rows`; see `traces`."""
    spans: list[Span] = []
    roots: dict[str, Span] = {}
    for where, record in found:
        if not fits(record):
            rows.problem(where, "neither a trace nor a span; lines of this format have `object`: trace or trace.span")
            continue
        for number, raw in enumerate(map(mapping, items(record["data"]) if "data" in record else [record])):
            place = f"{where}{', ' * bool(where)}item {number + 1}" if "data" in record else where
            if raw.get("object") == "trace" and raw.get("id"):
                roots.setdefault(text(raw["id"]), _trace(raw, place))
            elif raw.get("object") == "trace.span" and raw.get("id") and raw.get("trace_id"):
                spans.append(_span(raw, place, rows))
            elif raw:
                rows.problem(place, "no id and trace_id, so nobody knows where it belongs; it is left out")
    _fail(spans, roots)
    add_episodes([*roots.values(), *spans], rows)


def _trace(raw: Mapping[str, Any], where: str) -> Span:
    identity, said = text(raw["id"]), mapping(raw.get("metadata"))
    span = Span(identity, _ROOT, None, f"{where}{', ' * bool(where)}{identity}", name=raw.get("workflow_name"))
    span.conversation = None if raw.get("group_id") is None else text(raw["group_id"])
    span.facts = facts_of(said)
    span.metadata = {"trace": identity, "workflow": raw.get("workflow_name"), **said}
    return span


def _span(raw: Mapping[str, Any], where: str, rows: Rows) -> Span:
    data, identity = mapping(raw.get("span_data")), text(raw["id"])
    where = f"{where}{', ' * bool(where)}{identity}"
    parent = text(raw["parent_id"]) if raw.get("parent_id") else _ROOT
    span = Span(
        text(raw["trace_id"]), identity, parent, where, _KINDS.get(str(data.get("type")), "other"), data.get("name")
    )
    span.start, span.end = nanoseconds(raw.get("started_at")), nanoseconds(raw.get("ended_at"))
    for name, time in (("started_at", span.start), ("ended_at", span.end)):
        if time is None and raw.get(name) is not None:
            rows.problem(where, f"{name}: {str(raw[name])[:40]!r} is no time in ISO 8601; it is unknown")
    if error := mapping(raw.get("error")):
        span.error = text(mapping(error.get("data")).get("error") or error.get("message") or "error")
    if span.kind == "model":
        response = mapping(data.get("response"))
        said = data.get("output") or response.get("output")
        span.prompt = None if data.get("input") is None else conversation(data["input"])
        span.said = joined(conversation(said, role="assistant"))
        span.model = data.get("model") or response.get("model")
        span.usage = tokens(data.get("usage"))
    elif span.kind == "tool":
        span.arguments = data.get("input")
    return span


def _fail(spans: list[Span], roots: dict[str, Span]) -> None:
    """A run fails as its outermost agent does; the SDK leaves the trace without an error."""
    agents = {(span.trace, span.id) for span in spans if span.kind == "agent"}
    parents = {(span.trace, span.id): (span.trace, span.parent or "") for span in spans}
    for span in spans:
        if span.kind != "agent" or span.error is None or span.trace not in roots:
            continue
        above, steps = parents[span.trace, span.id], 0
        while above in parents and above not in agents and steps < len(spans):
            above, steps = parents[above], steps + 1
        if above not in agents:
            roots[span.trace].error = span.error
