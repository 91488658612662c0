"""Observations of Langfuse as its API and exports give them: one per line, a list, pages (`data`), or within traces.

Scores beside them are those of their trace, the mean of those of one name; one that is true or false and called
success, correct or the like is the success, and the score is the one called score or reward, or the only one of the
file. Task and success are read from metadata, `sessionId` makes a conversation of traces. The SDK's own spans are read
as OpenTelemetry's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from palaestra.evaluation.logs.files import Documents
from palaestra.evaluation.logs.genai import joined, langfuse_usage
from palaestra.evaluation.logs.prompts import conversation, parsed
from palaestra.evaluation.logs.readers import READERS, LogReader
from palaestra.evaluation.logs.rows import Rows, items, mapping, text
from palaestra.evaluation.logs.spans import Kind, Span, facts_of, nanoseconds
from palaestra.evaluation.logs.traces import add_episodes

_KINDS: dict[str, Kind] = {"GENERATION": "model", "AGENT": "agent", "TOOL": "tool"}
_ROOT = "trace"


@READERS.register("langfuse")
def langfuse() -> LogReader:
    """Makes the `LogReader` of Langfuse's observations, traces and scores."""
    return LogReader(read, fits=fits, trace=True)


def fits(record: dict[str, Any]) -> bool:
    """Whether a JSON object is Langfuse's: an observation, a trace with its own, or a page of either."""
    return any(map(_is_ours, items(record.get("data")) or [record]))


def _is_ours(raw: Any) -> bool:
    raw = mapping(raw)
    return _is_observation(raw) or any(map(_is_observation, items(raw.get("observations"))))


def _is_observation(raw: Any) -> bool:
    return isinstance(raw, Mapping) and "traceId" in raw and "startTime" in raw and "type" in raw


def read(found: Documents, rows: Rows) -> None:
    """Adds an episode per trace, or session of several, of (place, JSON object) pairs, to `Rows`; see `traces`."""
    spans: list[Span] = []
    roots: dict[str, Span] = {}
    scores: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for where, raw in _records(found):
        if _is_observation(raw) and raw.get("id"):
            spans.append(_span(raw, where, rows))
        elif "name" in raw and ("value" in raw or "stringValue" in raw) and "traceId" in raw:
            scores[text(raw["traceId"])].append(raw)
        elif raw.get("id") and ("timestamp" in raw or "observations" in raw):
            roots[text(raw["id"])] = _trace(raw, where)
        else:
            rows.problem(where, "neither an observation, a trace nor a score of Langfuse; it is left out")
    for span in spans:
        root = roots.setdefault(span.trace, Span(span.trace, _ROOT, None, span.where))
        if span.parent is None:
            span.parent = _ROOT
            root.name = root.name or span.name
            root.error = root.error or span.error
            root.facts = span.facts | root.facts
            root.metadata = span.metadata | root.metadata
            root.conversation = root.conversation or span.conversation
    graded = [(roots[trace], raw) for trace, many in scores.items() for raw in many if trace in roots]
    names = {text(raw["name"]) for _, raw in graded if _is_number(raw) and not _success(raw)}
    for trace, many in scores.items():
        if trace in roots:
            _grade(roots[trace], many, next(iter(names)) if len(names) == 1 else None, rows)
    add_episodes([*roots.values(), *spans], rows)


def _records(found: Documents) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every object by itself, out of pages and traces."""
    for where, record in found:
        paged = items(record.get("data"))
        for number, raw in enumerate(map(mapping, paged or [record])):
            place = f"{where}{', ' * bool(where)}entry {number}" if paged else where
            yield place, raw
            for name in ("observations", "scores"):
                for each in items(raw.get(name)):
                    if isinstance(each, Mapping):  # lists of traces have ids only
                        yield place, each if "traceId" in each else {**each, "traceId": raw.get("id")}


def _trace(raw: Mapping[str, Any], where: str) -> Span:
    identity, said = text(raw["id"]), mapping(raw.get("metadata"))
    span = Span(identity, _ROOT, None, f"{where}{', ' * bool(where)}trace {identity}", name=raw.get("name"))
    span.conversation = None if raw.get("sessionId") is None else f"session {raw['sessionId']}"
    span.facts = facts_of(said)
    span.metadata = {"trace": identity, "name": raw.get("name"), "tags": raw.get("tags") or None, **said}
    return span


def _span(raw: Mapping[str, Any], where: str, rows: Rows) -> Span:
    identity, said = text(raw["id"]), mapping(raw.get("metadata"))
    where = f"{where}{', ' * bool(where)}observation {identity}"
    parent = raw.get("parentObservationId")
    kind = _KINDS.get(text(raw["type"]).upper(), "other")
    span = Span(text(raw["traceId"]), identity, None if parent is None else text(parent), where, kind, raw.get("name"))
    span.start, span.end = nanoseconds(raw["startTime"]), nanoseconds(raw.get("endTime"))
    if span.start is None:
        rows.problem(where, f"startTime: {str(raw['startTime'])[:40]!r} is no time in ISO 8601; it is unknown")
    if raw.get("level") == "ERROR":
        span.error = text(raw.get("statusMessage") or "error")
    asked, answered = (_value(raw.get(name)) for name in ("input", "output"))
    if kind == "tool":
        span.arguments = asked
    elif kind != "other":
        span.prompt = None if asked is None else conversation(asked)
        span.said = joined(conversation(answered, role="assistant"))
    if kind == "model":
        span.model = raw.get("model")
        span.usage = langfuse_usage(raw.get("usageDetails") or raw.get("usage"))
        costs = mapping(raw.get("costDetails"))
        total = next(
            (each for each in (raw.get("totalCost"), raw.get("calculatedTotalCost")) if each is not None), None
        )
        span.cost = costs.get("total", total)
    span.facts = facts_of(said)
    span.conversation = None if raw.get("sessionId") is None else f"session {raw['sessionId']}"
    span.metadata = {"trace": span.trace, "name": raw.get("name"), **said} if parent is None else {}
    return span


def _value(value: Any) -> Any:
    try:
        return parsed(value)
    except (ValueError, RecursionError):
        return value


def _is_number(raw: Mapping[str, Any]) -> bool:
    return isinstance(raw.get("value"), int | float)


def _success(raw: Mapping[str, Any]) -> bool:
    """Whether a score of a trace says its success."""
    return raw.get("dataType") == "BOOLEAN" and "success" in facts_of({text(raw["name"]): True})


def _grade(root: Span, many: Sequence[Mapping[str, Any]], only: str | None, rows: Rows) -> None:
    """All scores of a trace. `only`: the one name of scores in the file, if it is one."""
    verdicts = {bool(raw.get("value")) for raw in many if _success(raw)}
    if len(verdicts) == 1:
        root.facts = {"success": verdicts.pop()} | root.facts
    elif verdicts and "success" not in root.facts:
        rows.problem(root.where, "its scores of success are true and false: success is unknown")
    values: dict[str, list[float]] = defaultdict(list)
    for raw in filter(_is_number, many):
        values[text(raw["name"])].append(raw["value"])
    root.scores |= {name: sum(each) / len(each) for name, each in values.items()}
    named = next((name for name in values if name == only or name.casefold() in ("score", "reward")), None)
    if named is not None:
        root.facts.setdefault("score", root.scores[named])
