"""Facts about a workspace after each turn, as columns: from a language server, or from any other checker."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
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
    """Protocol of a checker with a `name`: `diagnostics(files)` -> facts of a workspace; see `LanguageServer`."""

    name: str

    def diagnostics(self, files: Mapping[str, str]) -> list[Fact]:
        """Diagnostics of a workspace, in a fixed order."""


class PythonSyntax:
    """`Checker` without a server: one diagnostic for each file that Python cannot parse.

    >>> PythonSyntax().diagnostics({"a.py": "x = (", "b.py": "y = 1"})[0]["path"]
    'a.py'
    """

    name = "python-syntax"

    def diagnostics(self, files: Mapping[str, str]) -> list[Fact]:
        """One diagnostic for each file that cannot be parsed."""
        found = []
        for path, text in sorted(files.items()):
            try:
                read(text)
            except SyntaxError as error:
                line = (error.lineno or 1) - 1
                found.append({"path": inside(path), "line": line, "severity": 1, "message": "SyntaxError"})
        return found


class DiagnosticsCache:
    """Cache of a checker's diagnostics by a digest of the workspace, in memory or on disk; replay needs no server."""

    def __init__(self, checker: Checker | None = None, store: str | Path | None = None, *, name: str = "") -> None:
        """`checker`: None to replay only, then `name` is the name of the checker that filled the store."""
        if checker is None and not (store and name):
            raise InputError("DiagnosticsCache: without a checker, give the store to replay and its checker's name")
        self.checker, self.store = checker, Path(store) if store else None
        self.name = checker.name if checker is not None else name
        self._known: dict[str, dict[str, Any]] = {}
        self.asked = 0

    def facts(self, files: Mapping[str, str], target: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Diagnostics and number of definitions of a workspace, from the store or the checker; failures are not kept.

        {"diagnostics": [...], "definitions": number or None}

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
        if target is not None and ("symbol" in target or "text" in target):
            number = len(locate(files, target))
        elif target is not None and definitions is not None:
            number = definitions(files, target["path"], int(target["line"]), int(target["character"]))
        return {"checker": self.name, "diagnostics": found, "definitions": number}


def locate(files: Mapping[str, str], target: Mapping[str, Any]) -> list[int]:
    r"""List of line numbers (from 0) in `files` (path -> text) where dict `target`'s symbol is defined or text stands.

    target: {"path", "symbol"}, the end of the qualified name of a class or function in the syntax tree; or {"path",
    "text"}. More than one line says that the address is ambiguous, none that it is gone.

    >>> locate({"a.py": "class A:\n    def f(self): ..."}, {"path": "a.py", "symbol": "A.f"})
    [1]
    """
    content = files.get(inside(target["path"]), "")
    if "symbol" not in target:
        return [line for line, each in enumerate(content.splitlines()) if target["text"] in each]
    wanted, found = str(target["symbol"]).split("."), []

    def visit(node: ast.AST, names: list[str]) -> None:
        for child in ast.iter_child_nodes(node):
            inner = names
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                inner = [*names, child.name]
                if inner[-len(wanted) :] == wanted:
                    found.append(child.lineno - 1)
            visit(child, inner)

    try:
        visit(read(content), [])
    except SyntaxError:
        return []
    return found


def apply_edits(files: Mapping[str, str], edits: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """A copy of the files (dict path -> text) with all edits applied; raises InputError if one does not fit.

    edits: {"path", "new"}, a whole file, or {"path", "old", "new"}, a text that must stand there exactly once.

    Raises:
        InputError: a path leaves the workspace, or an old text does not stand there once.

    >>> apply_edits({"a.py": "x = 1"}, [{"path": "a.py", "old": "1", "new": "2"}, {"path": "b.py", "new": ""}])
    {'a.py': 'x = 2', 'b.py': ''}
    """
    made = dict(files)
    for edit in edits:
        path, old = inside(edit["path"]), edit.get("old")
        count = 1 if old is None else made.get(path, "").count(old)
        if count != 1:
            raise InputError(f"edit of {path!r}: its text stands there {count} times, not once")
        made[path] = edit["new"] if old is None else made[path].replace(old, edit["new"])
    return made


def check_turns(
    turns: Turns,
    bundles: DiagnosticsCache | Checker,
    *,
    files: str = "files",
    edits: str | None = None,
    start: Mapping[str, str] | str | None = None,
    target: str | None = None,
) -> Turns:
    """A copy of `Turns` with [176]'s columns by a `Checker` or `DiagnosticsCache`: diagnostics before and after, safe.

    Also the confidence, `bundle` and `check_error`.

    Args:
        turns: a table with `episode`.
        bundles: where facts come from; each distinct workspace is asked about once.
        files: column of text, JSON {path: text}: the whole workspace after the turn.
        edits: instead, column of text, JSON list of the turn's edits to the workspace as the turns before left it, see
            `apply_edits`. Where they fail, every file stays as it was and safe is False.
        start: the workspace before the first turn, or the column that tells it on every row; without it the first
            turn's `diagnostics_before` is missing.
        target: column of text, JSON {"path", "line", "character"} from 0, or an address of `locate`: what the turn
            meant to act on. confidence is 1 / number of definitions there (0 for none), and 1 where nothing is named.

    safe is False where a path leaves the workspace; nothing of that workspace is then looked at, and its count is
    missing. Where the checker fails, the count is missing and `check_error` says why.

    Raises:
        SchemaError: a cell is not such JSON.
    """
    source = bundles if isinstance(bundles, DiagnosticsCache) else DiagnosticsCache(bundles)
    segments = turns.segments("episode")
    order = np.arange(len(turns)) if segments.order is None else segments.order
    first = order[segments.starts[segments.lengths > 0]]
    begun = _cells(turns, start, {}) if isinstance(start, str) else [start or {}] * len(turns)
    problems: list[str | None] = [None] * len(turns)
    snapshots = _cells(turns, files, {}) if edits is None else _edited(turns, edits, begun, order, first, problems)
    targets = _cells(turns, target, None) if target else [None] * len(turns)
    rows = []
    for snapshot, goal, problem in zip(snapshots, targets, problems, strict=True):
        row = _row(source, snapshot, goal)
        rows.append(row if problem is None else (row[0], False, 1.0, row[3], problem))
    counts = np.array([row[0] for row in rows], float)
    before = np.full(len(turns), np.nan)
    before[order[1:]] = counts[order[:-1]]
    before[first] = np.nan if start is None else [_row(source, begun[row], None)[0] for row in first]
    return turns.with_column(
        diagnostics=counts,
        diagnostics_before=before,
        safe=[row[1] for row in rows],
        confidence=np.array([row[2] for row in rows], float),
        bundle=pl.Series([row[3] for row in rows], dtype=pl.String),
        check_error=pl.Series([row[4] for row in rows], dtype=pl.String),
    )


def _row(
    source: DiagnosticsCache, files: Mapping[str, str], target: Mapping[str, Any] | None
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


def _edited(
    turns: Turns, column: str, begun: list[Any], order: np.ndarray, first: np.ndarray, problems: list[str | None]
) -> list[dict[str, str]]:
    """The workspace after each turn; where its edits fail, as it was before, and why in `problems`."""
    found: list[dict[str, str]] = [{}] * len(turns)
    begins, now = set(first.tolist()), dict[str, str]()
    for row in order.tolist():
        now = dict(begun[row]) if row in begins else now
        try:
            now = apply_edits(now, json.loads(turns[column][row] or "[]"))
        except (InputError, ValueError, KeyError, TypeError) as error:
            problems[row] = str(error)
        found[row] = now
    return found


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
