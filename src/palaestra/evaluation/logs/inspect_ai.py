"""Inspect AI logs (`.eval` and `.json`), read through Inspect's own log API (`palaestra[inspect]`).

A sample and epoch is an episode, a call of the model a turn. Calls inside scorer spans are the judge's: their words and
tokens are left out. The score is the first scorer's that gives one value; every scorer stands in `score.NAME`. Letters
and words count as Inspect counts them (C = yes = 1, P = .5, I = N = no = 0), and of letters only C is success; a value
that is no number is named, and no other scorer's takes its place. An error while scoring is `judge:`. Logs of one model
and other solvers are several systems.

A sample that was cancelled because another one failed, or that somebody declared invalid, says nothing of the system:
it is named and left out. A retried evaluation copies the samples it had; of one sample and epoch the latest log
counts.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from palaestra.errors import missing_extra
from palaestra.evaluation.logs.files import content, no_collection, too_much
from palaestra.evaluation.logs.messages import content_text, turns_of
from palaestra.evaluation.logs.readers import READERS, LogReader
from palaestra.evaluation.logs.rows import Rows, rest, text
from palaestra.evaluation.logs.usage import tokens

_SCORERS = ("scorers", "scorer")
_MEMBER = re.compile(r"samples/(.*)_epoch_(\d+)\.json")
_ATTACHED = re.compile(r"attachment://([0-9a-f]+)")
MOST_TEXT = 1 << 24
"""Characters of one text of one turn, with what is attached to it."""
_LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


_CANCELLED = re.compile(r"(asyncio\.(exceptions\.)?|trio\.|anyio\.)?Cancell?ed(Error)?\b")


@READERS.register("inspect")
def inspect() -> LogReader:
    """Makes the `LogReader` of Inspect AI's logs, `.eval` and `.json`."""
    return LogReader(read, sees=_sees)


def _sees(path: Path, head: bytes) -> bool:
    if head[:2] == b"PK":
        try:
            with zipfile.ZipFile(path) as archive:
                entries = archive.infolist()
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
            return False
        ours = any(entry.filename.startswith(("samples/", "_journal/", "header.json")) for entry in entries)
        return ours and not any(entry.flag_bits & 1 for entry in entries)
    return head.lstrip()[:1] == b"{" and all(word in head for word in (b'"version"', b'"status"', b'"eval"'))


def read(path: Path, rows: Rows) -> None:
    """Adds an episode per sample of a log file to a `Rows`; a sample that cannot be read becomes a problem there.

    Raises:
        MissingExtraError: Inspect AI is not installed.
    """
    try:
        from inspect_ai.log import read_eval_log
    except ImportError:
        raise missing_extra("inspect-ai", "inspect") from None
    form = _form(path, rows)
    if form is None:
        return
    with no_collection():
        try:
            log = read_eval_log(str(path), header_only=form == "eval", format=form)
        except Exception as error:  # whatever a damaged log does to pydantic, zipfile or json
            rows.problem("", _reason(error))
            return
        if log.status != "success":
            rows.problem("", f"the evaluation ended with status {log.status!r}; its finished samples are read")
        whole = ((sample, sample.messages) for sample in log.samples or [])
        for sample, messages in whole if form == "json" else _stored(path, rows):
            place = f"sample {text(sample.id)[:60]!r}, epoch {sample.epoch}"
            try:
                _sample(place, sample, messages, log.eval, rows)
            except Exception as error:
                rows.problem(place, error)


def _form(path: Path, rows: Rows) -> Literal["json", "eval"] | None:
    """Which of the two; None, and a problem, if it holds more than is read."""
    try:
        with path.open("rb") as file:
            if file.read(2) != b"PK":
                return None if content(path, rows) is None else "json"
        with zipfile.ZipFile(path) as archive:
            why = too_much(archive, path.stat().st_size)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        why = f"not a whole zip file ({error})"
    if why:
        rows.problem("", why)
    return None if why else "eval"


def _stored(path: Path, rows: Rows) -> Iterator[tuple[Any, list[Any]]]:
    """The samples that `read_eval_log` gives for an `.eval` file, and their messages, in less than half its time.

    Inspect's own models check every sample here too, but without its cache of messages: hashing each message costs more
    than making it again. What no turn shows is dropped before.
    """
    from inspect_ai.log import EvalSample, read_eval_log
    from pydantic_core import from_json

    try:
        from inspect_ai.log._resolve import resolve_sample_events_data
    except ImportError:  # it is internal, and may move: then the slow way
        yield from ((sample, sample.messages) for sample in read_eval_log(str(path), format="eval").samples or [])
        return

    with zipfile.ZipFile(path) as log:  # Inspect has taught it zstandard
        members = filter(None, map(_MEMBER.fullmatch, dict.fromkeys(log.namelist())))  # written twice: the second
        for member in sorted(members, key=_place):
            try:
                data = from_json(log.read(member[0]))
                sample = EvalSample.model_validate(_used(data), context={"deserializing": True})
                yield resolve_sample_events_data(sample), data["messages"]
            except Exception as error:
                rows.problem(f"sample {member[1][:60]!r}, epoch {member[2]}", _reason(error))


def _place(member: re.Match[str]) -> tuple[int, str]:
    """Inspect's order: by epoch, then by id, numbers by size."""
    return int(member[2]), member[1].zfill(20) if member[1].isdecimal() else member[1]


def _used(sample: dict[str, Any]) -> dict[str, Any]:
    kept = []
    for event in sample.get("events") or []:
        if event["event"] == "model":
            kept.append(event | {"tools": [], "call": None})
        elif event["event"] in ("span_begin", "step", "error") or (event["event"] == "tool" and event.get("error")):
            kept.append(event)
    return sample | {"events": kept, "messages": [], "store": {}}


def _reason(error: Exception) -> str:
    return f"Inspect cannot read it ({type(error).__name__}: {' '.join(str(error).split())[:200]})"


def _sample(place: str, sample: Any, messages: list[Any], header: Any, rows: Rows) -> None:
    if sample.error is not None and _CANCELLED.match(str(sample.error.message)):
        rows.problem(place, "cancelled before it ended, as when another sample failed: it is not counted")
        return
    if getattr(sample, "invalidation", None) is not None:
        rows.problem(place, "declared invalid in the log: it is not counted")
        return
    turns, failed_scoring = _turns(sample, messages)
    if sample.attachments:
        _attach(turns, sample.attachments)
    scores, primary = {}, None
    decided, success = False, None
    for name, score in (sample.scores or {}).items():
        for label, value in _values(name, score.value):
            if isinstance(value, str):
                rows.problem(place, f"score {label}: {value[:40]!r} is no number")
            else:
                scores[label] = value
            if not decided and label == name:
                decided = True
                primary = scores.get(name)
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
        "solver": header.solver,
        "solver_args": None if not header.solver_args else text(header.solver_args),
        "task_args": None if not header.task_args else text(header.task_args),
        "model_args": None if not header.model_args else text(header.model_args),
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
        _trial=f"{header.task_id}/{text(sample.id)}/{sample.epoch}" if header.task_id else sample.uuid,
        _when=text(header.created),
        _solver=header.solver,
    )


def _attach(turns: list[dict[str, Any]], attachments: dict[str, str]) -> None:
    """Put long texts back, which a log stores once; only where a turn shows them (Inspect would do it everywhere).

    A text that would grow beyond `MOST_TEXT` stays as it is stored.
    """
    for turn in turns:
        for name in ("observation", "action", "arguments"):
            words = turn.get(name)
            if words is not None and "attachment://" in (words := text(words)):
                grown = sum(len(attachments.get(found, "")) for found in _ATTACHED.findall(words))
                if grown <= MOST_TEXT:
                    turn[name] = _ATTACHED.sub(lambda found: attachments.get(found[1], found[0]), words)


def _graded(sample: Any) -> Any:
    return (sample.scores or {}).items()


def _values(name: str, value: Any) -> Iterator[tuple[str, float | str]]:
    """A scorer's value as numbers; one that gives several has `NAME.key` for each. What is no number stays text."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from ((f"{name}.{text(key)}", v) for _, v in _values(name, each))
    elif isinstance(value, str):
        found = _LETTERS.get(value, _WORDS.get(value.casefold()))
        try:
            yield name, float(value) if found is None else found
        except ValueError:
            yield name, value
    elif isinstance(value, bool | int | float):
        yield name, float(value)


def _confidence(score: Any) -> float | None:
    value = (score.metadata or {}).get("confidence")
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _turns(sample: Any, messages: list[Any]) -> tuple[list[dict[str, Any]], bool]:
    """Turns of the agent, and whether an error came while scoring. Without events, from the messages."""
    scoring: set[str] = set()
    steps: list[bool] = []  # older logs have steps, one within the other, in the place of spans
    began = failed = False
    turns: list[dict[str, Any]] = []
    asked: dict[str, dict[str, Any]] = {}
    for event in sample.events:
        kind = event.event
        if kind == "span_begin" and (event.type in _SCORERS or event.parent_id in scoring):
            scoring.add(event.id)
            began = True
        elif kind == "step" and event.action == "begin":
            steps.append(event.type in _SCORERS or event.name in _SCORERS or any(steps[-1:]))
            began = began or steps[-1]
        elif kind == "step":
            del steps[-1:]
        elif kind == "error":
            failed = failed or began
        elif event.span_id in scoring or any(steps[-1:]):
            continue
        elif kind == "model":
            turns += _model_turn(event, len(turns) and turns[-1]["turn"] + 1, asked)
        elif kind == "tool" and event.error is not None and event.id in asked:
            asked[event.id]["tool_error"] = f"{event.error.type}: {event.error.message}"
    if not turns:
        turns = turns_of([m if isinstance(m, dict) else m.model_dump(exclude_none=True) for m in messages])
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
