"""Inspect AI logs (`.eval` and `.json`), read through Inspect's own log API (`palaestra[inspect]`).

A sample and epoch is an episode, a call of the model a turn. Calls inside scorer spans are the judge's: their words and
tokens are left out. The score is the first scorer's that gives one value; every scorer stands in `score.NAME`. Letters
count as Inspect counts them (C = 1, P = .5, I = N = 0), and only C is success. An error while scoring is `judge:`.
"""

from __future__ import annotations

import contextlib
import gc
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from palaestra.errors import missing_extra
from palaestra.evaluation.logs.messages import content_text, turns_of
from palaestra.evaluation.logs.rows import Rows, rest, text
from palaestra.evaluation.logs.usage import tokens

_ATTACHED = re.compile(r"attachment://([0-9a-f]+)")
_LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}


def read(path: Path, rows: Rows) -> None:
    """One episode per sample. If the log cannot be read as a whole, sample by sample; then the broken one is named.

    Raises:
        MissingExtraError: Inspect AI is not installed.
    """
    try:
        from inspect_ai.log import read_eval_log
    except ImportError:
        raise missing_extra("inspect-ai", "inspect") from None
    form = "json" if path.read_bytes()[:1] == b"{" else "eval"
    with _no_collection():
        try:
            log = read_eval_log(str(path), format=form)  # type: ignore[arg-type]
            samples = log.samples or []
        except Exception as error:  # whatever a damaged log does to pydantic, zipfile or json
            if form == "json":
                rows.problem("", _reason(error))
                return
            log, samples = None, list(_one_by_one(path, rows))
        header = getattr(log, "eval", None) or _header(path, form, rows)
        if header is None:
            return
        if log is not None and log.status != "success":
            rows.problem("", f"the evaluation ended with status {log.status!r}; its finished samples are read")
        for sample in samples:
            place = f"sample {text(sample.id)[:60]!r}, epoch {sample.epoch}"
            try:
                _sample(place, sample, header, rows)
            except Exception as error:
                rows.problem(place, error)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """A log is a million small objects, none of them garbage: looking for some takes longer than reading."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _header(path: Path, form: Any, rows: Rows) -> Any:
    from inspect_ai.log import read_eval_log

    try:
        return read_eval_log(str(path), header_only=True, format=form).eval
    except Exception as error:
        rows.problem("", _reason(error))
        return None


def _one_by_one(path: Path, rows: Rows) -> Iterator[Any]:
    from inspect_ai.log import read_eval_log_sample, read_eval_log_sample_summaries

    try:
        summaries = read_eval_log_sample_summaries(str(path), format="eval")
    except Exception as error:
        rows.problem("summaries", _reason(error))
        return
    for summary in summaries:
        try:
            yield read_eval_log_sample(str(path), summary.id, summary.epoch, format="eval")
        except Exception as error:
            rows.problem(f"sample {text(summary.id)[:60]!r}, epoch {summary.epoch}", _reason(error))


def _reason(error: Exception) -> str:
    return f"Inspect cannot read it ({type(error).__name__}: {' '.join(str(error).split())[:200]})"


def _sample(place: str, sample: Any, header: Any, rows: Rows) -> None:
    turns, failed_scoring = _turns(sample)
    if sample.attachments:
        _attach(turns, sample.attachments)
    scores, primary = {}, None
    success = None
    for name, score in (sample.scores or {}).items():
        for label, value in _values(name, score.value):
            scores[label] = value
            if primary is None and label == name and value is not None:
                primary = value
                success = score.value == "C" if isinstance(score.value, str) and score.value in _LETTERS else None
    last = turns[-1]
    confidence = next((_confidence(s) for s in (sample.scores or {}).values() if _confidence(s) is not None), None)
    last["confidence"] = confidence
    extra = {
        "sample": sample.metadata,
        "target": sample.target,
        "total_time": sample.total_time,
        "working_time": sample.working_time,
        "error_retries": len(sample.error_retries or []) or None,
        "scorers": {n: rest(s.model_dump(exclude_none=True), {"value", "history"}) for n, s in _graded(sample)},
    }
    last["metadata"] = rest(extra, ())
    boundary = "judge" if failed_scoring else "run"
    rows.episode(
        place,
        turns,
        system=header.model,
        task=f"{header.task}/{text(sample.id)}",
        score=primary,
        scores=scores,
        success=success,
        error=None if sample.error is None else f"{boundary}: {sample.error.message}",
        limit=None if sample.limit is None else sample.limit.type,
        truncated=sample.limit is not None,
    )


def _attach(turns: list[dict[str, Any]], attachments: dict[str, str]) -> None:
    """Put long texts back, which a log stores once; only where a turn shows them (Inspect would do it everywhere)."""
    for turn in turns:
        for name in ("observation", "action", "arguments"):
            words = turn.get(name)
            if words is not None and "attachment://" in (words := text(words)):
                turn[name] = _ATTACHED.sub(lambda found: attachments.get(found[1], found[0]), words)


def _graded(sample: Any) -> Any:
    return (sample.scores or {}).items()


def _values(name: str, value: Any) -> Iterator[tuple[str, float | None]]:
    """A scorer's value as numbers; one that gives several has `NAME.key` for each."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from ((f"{name}.{text(key)}", v) for _, v in _values(name, each))
    elif isinstance(value, str):
        with contextlib.suppress(ValueError):
            yield name, _LETTERS[value] if value in _LETTERS else float(value)
    elif isinstance(value, bool | int | float):
        yield name, float(value)


def _confidence(score: Any) -> float | None:
    value = (score.metadata or {}).get("confidence")
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _turns(sample: Any) -> tuple[list[dict[str, Any]], bool]:
    """Turns of the agent, and whether an error came while scoring. Without events, from the messages."""
    scoring: set[str] = set()
    began = failed = False
    turns: list[dict[str, Any]] = []
    asked: dict[str, dict[str, Any]] = {}
    for event in sample.events:
        kind = event.event
        if kind == "span_begin" and (event.type in ("scorers", "scorer") or event.parent_id in scoring):
            scoring.add(event.id)
            began = True
        elif kind == "error":
            failed = failed or began
        elif event.span_id in scoring:
            continue
        elif kind == "model":
            turns += _model_turn(event, len(turns) and turns[-1]["turn"] + 1, asked)
        elif kind == "tool" and event.id in asked:
            row = asked[event.id]
            row["tool_error"] = None if event.error is None else f"{event.error.type}: {event.error.message}"
    if not turns and sample.messages:
        turns = turns_of([message.model_dump(exclude_none=True) for message in sample.messages])
    return turns or [{}], failed


def _model_turn(event: Any, number: int, asked: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    heard: list[str] = []
    for message in reversed(event.input):
        if message.role == "assistant":
            break
        heard.append(_words(message.content))
    choice = event.output.choices[0] if event.output.choices else None
    usage = event.output.usage
    row: dict[str, Any] = {
        "turn": number,
        "policy": event.model,
        "agent": event.role,
        "observation": "\n".join(reversed(heard)) or None,
        "action": _words(choice.message.content) if choice else None,
        "duration": event.working_time,
        "metadata": rest({"stop_reason": choice.stop_reason if choice else None, "error": event.error}, ()),
    }
    if usage is not None and usage.total_tokens:
        row |= tokens({n: v for n, v in usage.__dict__.items() if v is not None})
        row["cost"] = usage.total_cost
    rows = [row]
    for position, call in enumerate((choice.message.tool_calls or []) if choice else []):
        if position:
            rows.append({"turn": number, "policy": event.model, "agent": event.role})
        rows[-1] |= {"tool": call.function, "arguments": call.arguments}
        asked[call.id] = rows[-1]
    return rows


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    return content_text([part.model_dump(include={"type", "text"}) for part in content]) or ""
