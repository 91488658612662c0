"""Magentic Marketplace's SQLite file: tables `agents` and `actions`, each row a JSON object in its column `data`.

A customer's run is an episode, an action a turn. The file stores no utility: it follows from the YAML of the run, so
scores are null until somebody adds them. The file is opened read-only, and nothing in it is run.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from palaestra.evaluation.logs.readers import READERS, LogReader
from palaestra.evaluation.logs.rows import Rows, mapping, rest, text


@READERS.register("marketplace")
def marketplace() -> LogReader:
    """Makes the `LogReader` of Magentic Marketplace's SQLite file."""
    return LogReader(read, sees=lambda path, head: head[:16] == b"SQLite format 3\0")


def read(path: Path, rows: Rows) -> None:
    """Adds an episode per customer agent that acted to a `Rows`, from a SQLite file; businesses are left out."""
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        connection.execute("PRAGMA trusted_schema = OFF")  # views run expressions of their own; only tables are read
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not {"agents", "actions"} <= tables:
            rows.problem("", "no tables 'agents' and 'actions': not a file of Magentic Marketplace")
            return
        agents = dict(_objects(connection, "agents", rows))
        acted: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        for row, action in _objects(connection, "actions", rows):
            acted.setdefault(text(action.get("agent_id")), []).append((row, action))
    except (sqlite3.Error, OSError, ValueError) as error:  # ValueError: sqlite quotes what is not UTF-8
        rows.problem("", f"not a readable SQLite file ({error})")
        return
    finally:
        if "connection" in locals():
            connection.close()
    for agent, actions in acted.items():
        profile = agents.get(agent, {})
        if "business" in profile:
            continue
        turns = [_turn(agent, action) for _, action in actions]
        rows.episode(f"actions row {actions[0][0]}", turns, task=agent, system=profile.get("model"))


def _objects(connection: sqlite3.Connection, table: str, rows: Rows) -> Any:
    columns = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
    order = " ORDER BY rowid" if "rowid" not in columns else ""
    for identity, data in connection.execute(f"SELECT id, data FROM {table}{order}"):
        try:
            value = json.loads(data)
            if not isinstance(value, dict):
                raise ValueError("not an object")
        except (ValueError, TypeError, RecursionError) as error:
            rows.problem(f"{table} row {text(identity)[:60]}", error)
            continue
        yield text(identity), value


def _turn(agent: str, action: dict[str, Any]) -> dict[str, Any]:
    request, result = mapping(action.get("request")), mapping(action.get("result"))
    parameters = request.get("parameters")
    to = parameters.get("to_agent_id") if isinstance(parameters, dict) else None
    return {
        "agent": agent,
        "action": parameters,
        "tool": request.get("name"),
        "arguments": parameters,
        "recipient": None if to is None else [text(to)],
        "tool_error": text(result.get("content")) if result.get("is_error") else None,
        "metadata": rest(action, {"agent_id", "request"}),
    }
