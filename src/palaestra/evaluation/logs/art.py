"""ART's trajectories: the Parquet files that it writes now, and its older JSON lines, a group of trajectories each.

`iteration` is the step, the name of the file; the system is the model's folder, `models/NAME/trajectories/SPLIT/`.
Older YAML files are turned into these by ART's own migration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from palaestra.evaluation.logs.columns import task_of
from palaestra.evaluation.logs.files import Documents
from palaestra.evaluation.logs.messages import opening, turns_of
from palaestra.evaluation.logs.readers import READERS, LogReader
from palaestra.evaluation.logs.rows import Rows, dump, items, mapping, text

_NAMES = ("task", "task_id", "scenario_id", "scenario", "question_id", "id")
"""What trajectories call their task in their metadata, the likeliest first."""


@READERS.register("art")
def art() -> LogReader:
    """Makes the `LogReader` of ART's groups of trajectories as JSON lines; its Parquet files are read as tables."""
    return LogReader(read, fits=fits)


def fits(record: dict[str, Any]) -> bool:
    """Whether a JSON object is an ART group: trajectories that hold messages."""
    trajectories = record.get("trajectories")
    return isinstance(trajectories, list) and any(
        "messages_and_choices" in mapping(each) or "messages" in mapping(each) for each in trajectories
    )


def has_art_columns(columns: Sequence[str]) -> bool:
    """Whether a list of column names has those of ART's Parquet files: group_index, reward, metrics, messages."""
    return {"group_index", "reward", "metrics", "messages"} <= set(columns)


def read(found: Documents, rows: Rows) -> None:
    """Adds an episode per trajectory of groups in `found`, (place, JSON object) pairs, to `Rows`, or a problem."""
    for where, record in found:
        if not fits(record):
            rows.problem(where, "no group of trajectories with messages")
            continue
        shared = mapping(record.get("metadata"))
        for number, each in enumerate(record["trajectories"]):
            one = mapping(each)
            messages = one.get("messages_and_choices") or one.get("messages")
            place = f"{where}, trajectory {number}".removeprefix(", ")
            _trajectory(place, one.get("reward"), messages, one.get("metrics"), {**shared, **_facts(one)}, rows)


def read_art(frame: pl.DataFrame, rows: Rows) -> None:
    """Adds an episode per row of the table of ART's Parquet file to a `Rows`."""
    for number, record in enumerate(frame.iter_rows(named=True)):
        facts = {**_object(record.get("group_metadata")), **_object(record.get("metadata"))}
        _trajectory(f"row {number}", record["reward"], record["messages"], _object(record["metrics"]), facts, rows)


def _trajectory(where: str, reward: Any, messages: Any, metrics: Any, facts: Mapping[str, Any], rows: Rows) -> None:
    talk = [_message(each) for each in items(messages) if isinstance(each, Mapping)]
    parts = Path(rows.file).parts
    model = parts[parts.index("models") + 1] if "models" in parts[:-2] else None
    turns = turns_of(talk, policy=model) or [{}]
    turns[-1]["metadata"] = dump(dict(facts)) if facts else None
    name = next((text(facts[key]) for key in _NAMES if facts.get(key) is not None), None)
    numbers = {key: x for key, x in mapping(metrics).items() if isinstance(x, int | float)}
    stem = Path(rows.file).stem
    rows.episode(
        where,
        turns,
        system=model,
        task=task_of(opening(talk)) if name is None else name,
        score=reward,
        scores=numbers,
        iteration=int(stem) if stem.isdecimal() else None,
    )


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A choice holds its message; tool calls are text in Parquet."""
    inner = dict(mapping(message.get("message")) or message)
    inner.pop("trainable", None)
    if isinstance(inner.get("tool_calls"), str):
        inner["tool_calls"] = _list(inner["tool_calls"])
    return {key: value for key, value in inner.items() if value is not None}


def _facts(trajectory: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(trajectory.get("metadata"))


def _object(value: Any) -> Mapping[str, Any]:
    try:
        return mapping(json.loads(value)) if isinstance(value, str) else mapping(value)
    except ValueError:
        return {}


def _list(value: str) -> list[Any]:
    try:
        found = json.loads(value)
    except ValueError:
        return []
    return found if isinstance(found, list) else []
