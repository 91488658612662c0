"""Chat JSONL: a line per episode, `{"messages": [...]}` in OpenAI's style, with whatever else it says of itself.

Understood beside `messages`: task (or task_id, id, question_id), system (or model, agent, policy, run_name), reward
(or score), success (or correct, passed, resolved …), error, run, seed, cost, confidence, scores, limit. The task of a
line without one is what its first user message says.
"""

from __future__ import annotations

from typing import Any

from palaestra.errors import InputError
from palaestra.evaluation.logs.columns import SUCCESS, task_of, truth_of
from palaestra.evaluation.logs.files import Documents
from palaestra.evaluation.logs.messages import opening, turns_of
from palaestra.evaluation.logs.readers import READERS, LogReader
from palaestra.evaluation.logs.rows import Rows, rest, text
from palaestra.evaluation.logs.systems import system_of

_KNOWN = {
    "messages", "task", "task_id", "id", "question_id", "system", "model", "reward", "score", "success", "error", "run",
    "seed", "usage", "cost", "confidence", "scores", "limit",
}  # fmt: skip


@READERS.register("chat")
def chat() -> LogReader:
    """Makes the `LogReader` of chats as JSON lines: an object with a list of messages per episode."""
    return LogReader(read, fits=fits, order=8)


def fits(record: dict[str, Any]) -> bool:
    """Whether a JSON object is a chat: it has a list of messages."""
    return isinstance(record.get("messages"), list)


@READERS.register("messages")
def messages() -> LogReader:
    """Makes the `LogReader` of a conversation as JSON lines, a message each: OpenAI's by role, AutoGen's by source."""
    return LogReader(read_messages, fits=is_message, order=9)


def is_message(record: dict[str, Any]) -> bool:
    """Whether a JSON object is one chat message, of OpenAI's or AutoGen's form."""
    return "content" in record and ("role" in record or {"source", "type"} <= record.keys())


def read_messages(found: Documents, rows: Rows) -> None:
    """Adds one episode to `Rows` of all messages in `found`, (place, JSON object) pairs; none without a message."""
    talk = []
    for where, record in found:
        if is_message(record):
            talk.append(record)
        else:
            rows.problem(where, "a line that is no message")
    if talk:
        rows.episode("", turns_of(talk) or [{}], task=task_of(opening(talk)))


def read(found: Documents, rows: Rows) -> None:
    """Adds an episode per chat in `found`, (place, JSON object with `messages`) pairs, to `Rows`, or a problem."""
    try:
        named = system_of([record for _, record in found], rows)
    except InputError as error:
        rows.problem("", str(error).removeprefix(f"{rows.file}: "))
        return
    known = _KNOWN - set((rows.system or "").split(","))
    for (where, record), system in zip(found, named, strict=True):
        messages = record.get("messages")
        if not isinstance(messages, list):
            rows.problem(where, "no list of messages")
            continue
        turns = turns_of(messages, policy=record.get("model")) or [{}]
        last = turns[-1]
        last["confidence"] = record.get("confidence")
        last["metadata"] = rest({"turn": last.get("metadata")} | record, known)
        names = (record.get(name) for name in ("task", "task_id", "question_id", "id"))
        task = next((text(name) for name in names if name is not None), None)
        scores = record.get("scores")
        rows.episode(
            where,
            turns,
            system=system or record.get("model"),
            task=task_of(opening(messages)) if task is None else task,
            score=record.get("reward", record.get("score")),
            cost=record.get("cost"),
            scores=scores if isinstance(scores, dict) else None,
            success=_success(record),
            error=record.get("error"),
            run=record.get("run"),
            seed=record.get("seed"),
            limit=record.get("limit"),
        )


def _success(record: dict[str, Any]) -> Any:
    """Success of a record, under any of its usual names."""
    if (said := record.get("success")) is not None:
        return said if (truth := truth_of(said)) is None else truth  # what is neither is named by the row's check
    words = (truth_of(record[name]) for name in SUCCESS if isinstance(record.get(name), str | bool | int))
    return next((truth for truth in words if truth is not None), None)
