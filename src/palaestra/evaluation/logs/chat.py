"""Chat JSONL: a line per episode, `{"messages": [...]}` in OpenAI's style, with whatever else it says of itself.

Understood beside `messages`: task (or task_id, id, question_id), system (or model, agent, policy, run_name), reward
(or score), success, error, run, seed, cost, confidence, scores, limit. The task of a line without one is what its
first user message says.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

from palaestra.errors import InputError
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
    """Chat messages as JSON lines."""
    return LogReader(read, fits=fits, order=8)


def fits(record: dict[str, Any]) -> bool:
    """A list of messages."""
    return isinstance(record.get("messages"), list)


def read(found: Documents, rows: Rows) -> None:
    """One episode per object."""
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
            success=record.get("success"),
            error=record.get("error"),
            run=record.get("run"),
            seed=record.get("seed"),
            limit=record.get("limit"),
        )


@lru_cache(4096)
def task_of(prompt: str) -> str:
    """A name for a task that is known by its prompt alone: its beginning and a digest."""
    digest = hashlib.sha256(prompt.encode("utf-8", "replace")).hexdigest()[:10]
    return f"{' '.join(prompt.split())[:40]} #{digest}"
