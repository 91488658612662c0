"""OpenTelemetry's traces as OTLP JSON, an object with `resourceSpans` per line as the collector's file exporter writes.

One object for the whole file will do as well; events in `resourceLogs` of the same file are those of their spans. What
attributes mean: `genai`. Protobuf: `otlp_protobuf`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from palaestra.evaluation.logs.autogen_spans import is_autogen, note, weave
from palaestra.evaluation.logs.files import Documents
from palaestra.evaluation.logs.genai import Event, describe
from palaestra.evaluation.logs.readers import READERS, LogReader
from palaestra.evaluation.logs.rows import Rows, items, mapping, text
from palaestra.evaluation.logs.spans import Span
from palaestra.evaluation.logs.traces import add_episodes

_PLAIN = ("stringValue", "boolValue", "doubleValue", "bytesValue")


@READERS.register("otel")
def otel() -> LogReader:
    """Makes the `LogReader` of OpenTelemetry spans with attributes for generative AI, as OTLP JSON."""
    return LogReader(read, fits=fits, trace=True)


def fits(record: dict[str, Any]) -> bool:
    """Whether a JSON object is OTLP JSON: spans or logs by resource."""
    return isinstance(record.get("resourceSpans", record.get("resourceLogs")), list)


def read(found: Documents, rows: Rows) -> None:
    """Adds an episode per trace of `found`, (place, OTLP JSON object) pairs, to `Rows`; see `traces`."""
    events = _logged(found)
    spans: list[Span | None] = []
    for where, record in found:
        if not fits(record):
            if "resourceMetrics" not in record:
                rows.problem(where, "no `resourceSpans`; lines of OTLP JSON have them")
            continue
        for group in map(mapping, items(record.get("resourceSpans"))):
            resource = attributes_of(mapping(group.get("resource")).get("attributes"))
            scopes = items(group.get("scopeSpans")) or items(group.get("instrumentationLibrarySpans"))
            for scope in map(mapping, scopes):
                for number, raw in enumerate(map(mapping, items(scope.get("spans")))):
                    happened = _happened(raw)
                    happened += events.get(text(raw.get("spanId") or ""), [])
                    place = f"{where}{', ' * bool(where)}span {number + 1}"
                    spans.append(span_of(raw, attributes_of(raw.get("attributes")), happened, resource, place, rows))
    add_traces([span for span in spans if span is not None], rows)


def add_traces(spans: list[Span], rows: Rows) -> None:
    """Adds all episodes of a list of `Span` to a `Rows`, with AutoGen's messages attached to its agents' spans."""
    if delivered := [(span, span.delivered) for span in spans if span.delivered]:
        weave(spans, delivered)
    add_episodes(spans, rows)


def span_of(
    raw: Mapping[str, Any],
    attributes: Mapping[str, Any],
    events: Sequence[Event],
    resource: Mapping[str, Any],
    where: str,
    rows: Rows,
) -> Span | None:
    """`Span` of a raw OTLP span, its attributes, events and resource; None without ids or for an agent's creation.

    The ids are span id and trace id; without them there is a problem in `rows` (`Rows`).
    """
    identity, trace = raw.get("spanId"), raw.get("traceId")
    if not isinstance(identity, str) or not isinstance(trace, str) or not identity or not trace:
        rows.problem(where, "no spanId and traceId, so nobody knows where it belongs; it is left out")
        return None
    where = where.rpartition("span ")[0] + f"span {identity[:32]}"
    if attributes.get("gen_ai.operation.name") == "create_agent":
        return None  # nothing was done yet
    span = Span(trace, identity, raw.get("parentSpanId") or None, where, name=text(raw.get("name") or ""))
    span.start, span.end = (
        _time(raw.get(name), name, where, rows) for name in ("startTimeUnixNano", "endTimeUnixNano")
    )
    status = mapping(raw.get("status"))
    if status.get("code") in (2, "STATUS_CODE_ERROR"):
        span.error = text(status.get("message") or attributes.get("error.type") or "error")
    for wrong in describe(span, attributes, events, resource):
        rows.problem(where, wrong)
    if span.parent is None:
        own = {name: value for name, value in attributes.items() if not name.startswith("gen_ai.")}
        span.metadata = {"trace": trace, **resource, **own}
    if is_autogen(attributes):
        span.delivered = note(span, attributes)
    return span


def _happened(raw: Mapping[str, Any]) -> list[Event]:
    events = map(mapping, items(raw.get("events")))
    return [(text(each.get("name") or ""), attributes_of(each.get("attributes"))) for each in events]


def _time(value: Any, name: str, where: str, rows: Rows) -> int | None:
    if value in (None, "", 0, "0"):
        return None
    try:
        if 0 < (time := int(value)) < 1 << 63:
            return time
    except (TypeError, ValueError, OverflowError):
        pass
    rows.problem(where, f"{name}: {str(value)[:40]!r} is no number of nanoseconds since 1970; the time is unknown")
    return None


def _logged(found: Documents) -> dict[str, list[Event]]:
    """Events of log records by the span in which they were written."""
    events: dict[str, list[Event]] = defaultdict(list)
    for _, record in found:
        for group in items(record.get("resourceLogs")):
            for scope in items(mapping(group).get("scopeLogs")):
                for raw in map(mapping, items(mapping(scope).get("logRecords"))):
                    fields = attributes_of(raw.get("attributes"))
                    name = raw.get("eventName") or fields.get("event.name")
                    if name and raw.get("spanId"):
                        body = value_of(raw.get("body"))
                        fields |= body if isinstance(body, dict) else {}
                        events[text(raw["spanId"])].append((text(name), fields))
    return events


def attributes_of(raw: Any) -> dict[str, Any]:
    """Dict of the attributes of OTLP JSON, which are a list of keys and values.

    >>> attributes_of([{"key": "a", "value": {"intValue": "3"}}])
    {'a': 3}
    """
    return {text(pair["key"]): value_of(pair.get("value")) for pair in map(mapping, items(raw)) if "key" in pair}


def value_of(raw: Any) -> Any:
    """An OTLP attribute value as a plain Python value; None if it has no known kind."""
    if not isinstance(raw, Mapping):
        return raw
    for kind, value in raw.items():
        if kind in _PLAIN:
            return value
        if kind == "intValue":
            try:
                return int(value)
            except (TypeError, ValueError, OverflowError):
                return None
        if kind == "arrayValue":
            return [value_of(each) for each in items(mapping(value).get("values"))]
        if kind == "kvlistValue":
            return attributes_of(mapping(value).get("values"))
    return None
