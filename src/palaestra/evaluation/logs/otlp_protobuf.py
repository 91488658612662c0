"""OpenTelemetry's traces as OTLP protobuf (`palaestra[otel]`): of OTLP/HTTP, or of the collector's `format: proto`.

The first is one request (`ExportTraceServiceRequest`, the same as `TracesData`), the second several of them, each
behind its length in four bytes, the highest first.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from palaestra.errors import missing_extra
from palaestra.evaluation.logs.files import content
from palaestra.evaluation.logs.otlp import add_traces, span_of
from palaestra.evaluation.logs.readers import READERS, LogReader
from palaestra.evaluation.logs.rows import Rows
from palaestra.evaluation.logs.spans import Span

_FIRST = 0x0A
"""Tag of the first field of a request, and of the first one in it."""
_CONTROL = frozenset((0x08, 0x10, 0x12))
"""Tags and lengths that stand at the beginning of every span, and in no text."""


@READERS.register("otel_protobuf")
def otel_protobuf() -> LogReader:
    """Makes the `LogReader` of OpenTelemetry spans with attributes for generative AI, as OTLP protobuf."""
    return LogReader(read, sees=_sees, trace=True)


def _sees(path: Path, head: bytes) -> bool:
    if len(head) < 6 or _CONTROL.isdisjoint(head):
        return False
    return head[0] == _FIRST or (head[4] == _FIRST and 0 < int.from_bytes(head[:4], "big") <= path.stat().st_size - 4)


def read(path: Path, rows: Rows) -> None:
    """Adds an episode per trace of a protobuf file to a `Rows`; see `traces`.

    Raises:
        MissingExtraError: opentelemetry-proto is not installed.
    """
    try:
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    except ImportError:
        raise missing_extra("opentelemetry-proto", "otel") from None
    data = content(path, rows)
    if not data:
        return
    spans: list[Span | None] = []
    for where, part in _requests(data, rows):
        request = ExportTraceServiceRequest()
        try:
            request.ParseFromString(part)
        except DecodeError as error:
            why = f"no whole OTLP request ({error}); was the file cut off? Export it again, or as OTLP JSON"
            rows.problem(where, why)
            continue
        for group in request.resource_spans:
            resource = _attributes(group.resource.attributes)
            for scope in group.scope_spans:
                for number, span in enumerate(scope.spans):
                    happened = [(event.name, _attributes(event.attributes)) for event in span.events]
                    raw = {
                        "spanId": span.span_id.hex(),
                        "traceId": span.trace_id.hex(),
                        "name": span.name,
                        "parentSpanId": span.parent_span_id.hex(),
                        "startTimeUnixNano": span.start_time_unix_nano,
                        "endTimeUnixNano": span.end_time_unix_nano,
                        "status": {"code": span.status.code, "message": span.status.message},
                    }
                    place = f"{where}{', ' * bool(where)}span {number + 1}"
                    spans.append(span_of(raw, _attributes(span.attributes), happened, resource, place, rows))
    add_traces([span for span in spans if span is not None], rows)


def _requests(data: bytes, rows: Rows) -> Iterator[tuple[str, bytes]]:
    """The whole file, or what stands behind each length."""
    if data[0] == _FIRST:
        yield "", data
        return
    at = number = 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        number += 1
        if at + 4 + length > len(data):
            rows.problem(f"request {number}", "the file ends within it; was it cut off? The requests before are read")
            return
        yield f"request {number}", data[at + 4 : at + 4 + length]
        at += 4 + length


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    if kind == "kvlist_value":
        return _attributes(value.kvlist_value.values)
    return None if kind is None else getattr(value, kind)
