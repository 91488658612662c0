"""Claw-Eval traces: JSONL of typed events (arXiv 2604.06132). Field names from its released trace schema.

A trace is an episode. Its score is `task_score` of the last `grading_result`, else of `trace_end`, unless that holds
only the zeros it is born with; the four dimensions stand in `score.completion` and so on. A trace that was begun and
never ended is an error, and so a failure; trials that are missing altogether count as failures on the leaderboard,
which is a reducer's to do, not a reader's.
"""

from __future__ import annotations

from typing import Any

from palaestra.evaluation.logs.files import Documents
from palaestra.evaluation.logs.messages import turns_of
from palaestra.evaluation.logs.readers import READERS, LogReader
from palaestra.evaluation.logs.rows import Rows, dump, rest, text

TYPES = (
    "trace_start",
    "message",
    "tool_dispatch",
    "audit_snapshot",
    "media_load",
    "compact",
    "trace_end",
    "grading_result",
)
_DIMENSIONS = ("completion", "robustness", "communication", "safety")


@READERS.register("claw-eval")
def claw_eval() -> LogReader:
    """Makes the `LogReader` of Claw-Eval's traces."""
    return LogReader(read, fits=fits)


def fits(record: dict[str, Any]) -> bool:
    """Whether a JSON object is an event of a known type of Claw-Eval, with its trace."""
    return record.get("type") in TYPES and "trace_id" in record


def read(found: Documents, rows: Rows) -> None:
    """Adds an episode per trace to `Rows`, from `found`, (place, JSON event) pairs in the order of the file."""
    traces: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for where, event in found:
        if not isinstance(event.get("type"), str) or "trace_id" not in event:
            rows.problem(where, "an event without type or trace_id")
            continue
        traces.setdefault(text(event["trace_id"]), []).append((where, event))
    for trace, events in traces.items():
        _trace(trace, events, rows)


def _trace(trace: str, events: list[tuple[str, dict[str, Any]]], rows: Rows) -> None:
    where = events[0][0]
    by_type: dict[str, list[dict[str, Any]]] = {}
    for place, event in events:
        if event["type"] not in TYPES:
            rows.problem(place, f"unknown event {event['type'][:40]!r}")
        by_type.setdefault(event["type"], []).append(event)
    start = by_type.get("trace_start", [{}])[0]
    end = by_type.get("trace_end", [{}])[-1]
    graded_at_end = [end] if end.get("task_score") or end.get("failure_modes") else [{}]
    grade = by_type.get("grading_result", graded_at_end)[-1]
    turns = _turns(events, start.get("model"), rows)
    audits = [{key: e.get(key) for key in ("service_name", "audit_data")} for e in by_type.get("audit_snapshot", [])]
    known = ("type", "trace_id", "task_id", "model", "scores", "task_score", "passed")
    said: dict[str, Any] = {"trace": trace, "persona": start.get("persona"), "audit": audits or None}
    turns[-1]["metadata"] = rest(said | {"end": rest(end, known), "grading": rest(grade, known)}, ())
    dimensions = grade.get("scores")
    rows.episode(
        where,
        turns,
        system=start.get("model"),
        task=start.get("task_id", grade.get("task_id")),
        score=grade.get("task_score"),
        scores={n: dimensions[n] for n in _DIMENSIONS if n in dimensions} if isinstance(dimensions, dict) else None,
        success=grade.get("passed"),
        error=None if end or grade else "run: the trace was never ended",
        terminated=bool(end),
    )


def _turns(events: list[tuple[str, dict[str, Any]]], model: Any, rows: Rows) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    calls: dict[str, dict[str, Any]] = {}
    order: list[str] = []
    for place, event in events:
        if event["type"] == "message":
            message = event.get("message")
            if isinstance(message, dict):
                messages.append(message | {"usage": _known(event.get("usage"))})
            else:
                rows.problem(place, "a message event without a message")
        elif event["type"] == "tool_dispatch":
            order.append(dump(event.get("tool_use_id", place)))
            calls[order[-1]] = event
    turns = turns_of(messages, policy=model) or [{}]
    asked = [turn for turn in turns if turn.get("tool")]
    for position, key in enumerate(order):
        event = calls[key]
        if position < len(asked) and asked[position]["tool"] == event.get("tool_name"):
            row = asked[position]
        else:  # dispatched without a message that asks for it
            row = {"turn": turns[-1].get("turn"), "policy": model}
            turns.append(row)
        status = event.get("response_status")
        failed = isinstance(status, int) and status >= 400
        row |= {"tool": event.get("tool_name"), "arguments": event.get("request_body"), "status": status}
        row["tool_error"] = f"status {status}: {dump(event.get('response_body'))[:200]}" if failed else None
        latency = event.get("latency_ms")
        row["duration"] = latency / 1000 if isinstance(latency, int | float) else None
    return turns


def _known(usage: Any) -> dict[Any, Any] | None:
    """Usage as the trace says it; a provider that reports none leaves zeros."""
    if not isinstance(usage, dict) or not any(usage.values()):
        return None
    names: dict[Any, str] = {"input_tokens": "prompt_tokens", "cached_input_tokens": "cached_content_token_count"}
    return {names.get(name, name): value for name, value in usage.items() if value}
