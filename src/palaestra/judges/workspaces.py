"""Facts about a workspace after each turn, as columns: from a language server, or from any other checker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.envs.sandbox import read
from palaestra.errors import InputError, PalaestraError, SchemaError, StorageError
from palaestra.foundation.files import write_text
from palaestra.judges.language_server import Fact, bundle_id, inside


class Checker(Protocol):
    """Protocol of a diagnostics checker; `name` is part of the bundle. A `LanguageServer` is one."""

    name: str

    def diagnostics(self, files: Mapping[str, str]) -> list[Fact]:
        """Diagnostics of a workspace, in a fixed order."""


class PythonSyntax:
    """The smallest checker: one diagnostic for each file that Python cannot read. No server needed.

    >>> PythonSyntax().diagnostics({"a.py": "x = (", "b.py": "y = 1"})[0]["path"]
    'a.py'
    """

    name = "python-syntax"

    def diagnostics(self, files: Mapping[str, str]) -> list[Fact]:
        """One for each file that cannot be parsed."""
        found = []
        for path, text in sorted(files.items()):
            try:
                read(text)
            except SyntaxError as error:
                line = (error.lineno or 1) - 1
                found.append({"path": inside(path), "line": line, "severity": 1, "message": "SyntaxError"})
        return found


class Bundles:
    """Facts by the id of what was asked, in memory and, with a directory, on disk: replay needs no server."""

    def __init__(self, checker: Checker | None = None, store: str | Path | None = None, *, name: str = "") -> None:
        """`checker`: None to replay only, then `name` is the name of the checker that filled the store."""
        if checker is None and not (store and name):
            raise InputError("Bundles: without a checker, give the store to replay and the name of its checker")
        self.checker, self.store = checker, Path(store) if store else None
        self.name = checker.name if checker is not None else name
        self._known: dict[str, dict[str, Any]] = {}
        self.asked = 0

    def facts(self, files: Mapping[str, str], target: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """{"diagnostics": [...], "definitions": number or None} of a workspace; failures are not kept.

        Raises:
            StorageError: it is not in the store, and there is no checker. What the checker raises.
        """
        key = bundle_id({"checker": self.name, "files": dict(files), "target": dict(target) if target else None})
        path = self.store / f"{key}.json" if self.store else None
        if key not in self._known and path and path.exists():
            self._known[key] = json.loads(path.read_text(encoding="utf-8"))
        if key not in self._known:
            self._known[key] = self._ask(files, target, key)
            if path:
                write_text(path, json.dumps(self._known[key], sort_keys=True))
        return self._known[key]

    def _ask(self, files: Mapping[str, str], target: Mapping[str, Any] | None, key: str) -> dict[str, Any]:
        if self.checker is None:
            raise StorageError(f"{self.store}: no facts {key}; run once with a checker")
        self.asked += 1
        found = self.checker.diagnostics(files)
        definitions = getattr(self.checker, "definitions", None)
        number = None
        if target is not None and definitions is not None:
            number = definitions(files, target["path"], int(target["line"]), int(target["character"]))
        return {"checker": self.name, "diagnostics": found, "definitions": number}


def check_turns(
    turns: Turns,
    bundles: Bundles | Checker,
    *,
    files: str = "files",
    start: Mapping[str, str] | None = None,
    target: str | None = None,
) -> Turns:
    """Adds what [176]'s reward needs: diagnostics, diagnostics_before, safe, confidence, bundle and check_error.

    Args:
        turns: a table with `episode`. bundles: where facts come from; each distinct workspace is asked about once.
        files: column of text, JSON {path: text}: the whole workspace after the turn.
        start: the workspace before the first turn; without it the first turn's `diagnostics_before` is missing.
        target: column of text, JSON {"path", "line", "character"} from 0: what the turn meant to act on. confidence is
            1 / number of definitions there (0 for none), and 1 where nothing is named.

    safe is False where a path leaves the workspace; nothing of that workspace is then looked at, and its count is
    missing. Where the checker fails, the count is missing and `check_error` says why.

    Raises:
        SchemaError: a cell is not such JSON.
    """
    source = bundles if isinstance(bundles, Bundles) else Bundles(bundles)
    snapshots = _cells(turns, files, {})
    targets = _cells(turns, target, None) if target else [None] * len(turns)
    rows = [_row(source, snapshot, goal) for snapshot, goal in zip(snapshots, targets, strict=True)]
    counts = np.array([row[0] for row in rows], float)
    segments = turns.segments("episode")
    order = np.arange(len(turns)) if segments.order is None else segments.order
    before = np.full(len(turns), np.nan)
    before[order[1:]] = counts[order[:-1]]
    first = order[segments.starts[segments.lengths > 0]]
    before[first] = np.nan if start is None else _row(source, start, None)[0]
    return turns.with_column(
        diagnostics=counts,
        diagnostics_before=before,
        safe=[row[1] for row in rows],
        confidence=np.array([row[2] for row in rows], float),
        bundle=pl.Series([row[3] for row in rows], dtype=pl.String),
        check_error=pl.Series([row[4] for row in rows], dtype=pl.String),
    )


def _row(
    source: Bundles, files: Mapping[str, str], target: Mapping[str, Any] | None
) -> tuple[float, bool, float, str | None, str | None]:
    """(number of diagnostics, safe, confidence, bundle, error) of one workspace."""
    try:
        for path in files:
            inside(path)
    except InputError as error:
        return np.nan, False, 1.0, None, str(error)
    try:
        facts = source.facts(files, target)
    except PalaestraError as error:
        return np.nan, True, 1.0, None, str(error)
    number = facts["definitions"]
    confidence = 1.0 if number is None else 1.0 / number if number else 0.0
    return float(len(facts["diagnostics"])), True, confidence, bundle_id(facts), None


def _cells(turns: Turns, column: str, otherwise: Any) -> list[Any]:
    cells = []
    for row, text in enumerate(turns[column].to_list()):
        try:
            cell = otherwise if text is None else json.loads(text)
        except ValueError as error:
            raise SchemaError(f"column {column!r}, row {row}: not JSON ({error})") from error
        if cell is not None and not isinstance(cell, dict):
            raise SchemaError(f"column {column!r}, row {row}: a JSON object is needed, not {type(cell).__name__}")
        cells.append(cell)
    return cells
