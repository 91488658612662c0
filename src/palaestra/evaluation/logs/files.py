"""JSON from files that may be damaged: what parses is returned with the place where it stands, the rest is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from palaestra.evaluation.logs.rows import Rows

Documents = list[tuple[str, dict[str, Any]]]
"""("line 3", object); ("", object) if the object is the whole file."""


def documents(path: Path, rows: Rows) -> Documents:
    """The objects of a JSON file, an array of objects, or a file with an object per line."""
    try:
        data = path.read_bytes()
    except OSError as error:
        rows.problem("", error.strerror or str(error))
        return []
    if not data.strip():
        rows.problem("", "the file is empty")
        return []
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    filled = [line for line in lines[:50] if line.strip()]
    if len(filled) > 1 and sum(line.startswith(b"{") for line in filled) > len(filled) / 2 and len(filled[0]) > 1:
        return _by_line(lines, rows)
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        rows.problem(_place(error), f"not JSON ({_reason(error)})")
        return []
    if isinstance(value, dict):
        return [("", value)]
    if not isinstance(value, list):
        rows.problem("", f"expected objects, found {type(value).__name__}")
        return []
    found = []
    for number, each in enumerate(value):
        if isinstance(each, dict):
            found.append((f"entry {number}", each))
        else:
            rows.problem(f"entry {number}", f"expected an object, found {type(each).__name__}")
    return found


def _by_line(lines: list[bytes], rows: Rows) -> Documents:
    found = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line.decode())
        except (ValueError, RecursionError) as error:
            rows.problem(f"line {number}", f"not JSON ({_reason(error)})")
            continue
        if isinstance(value, dict):
            found.append((f"line {number}", value))
        else:
            rows.problem(f"line {number}", f"expected an object, found {type(value).__name__}")
    return found


def _place(error: Exception) -> str:
    return f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg}, column {error.colno}"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error).splitlines()[0][:120]
