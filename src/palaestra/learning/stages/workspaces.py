"""Facts of a workspace after each turn of an agent that edits it (Lanser-CLI [176])."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.judges import DiagnosticsCache, LanguageServer, PythonSyntax, check_turns
from palaestra.learning.stages.stage import Context, Stage, stage


@stage
class checked(Stage):
    """Stage: columns of a checker (default: Python's syntax) on edits of each turn: `diagnostics`, `safe`, … [176].

    All are `diagnostics`, `diagnostics_before`, `safe`, `confidence`, `bundle` and `check_error`.

    Edits are applied to a copy of the workspace, all of a turn's or none; see `judges.check_turns`. The reward is
    `lanser_reward()`.

    Args:
        edits: column of the turn's edits; files: instead, column of the whole workspace after the turn. start: column
            of the workspace before the first turn. target: column of what a turn meant to act on.
        server: command of a language server; default: whether Python can parse the files. store: folder in which facts
            are kept, so that a reward can be computed again without a server.

    Raises:
        InputError: not exactly one of edits and files.
    """

    adds = {
        "diagnostics": "number of diagnostics after the turn",
        "diagnostics_before": "before it",
        "safe": "whether the edits could be applied inside the workspace",
        "confidence": "1 / definitions of the target",
        "bundle": "hash of the facts",
        "check_error": "why there are none",
    }

    def __init__(
        self,
        edits: str | None = None,
        *,
        files: str | None = None,
        start: str | None = None,
        target: str | None = None,
        server: Sequence[str] | None = None,
        store: str | None = None,
    ) -> None:
        if (edits is None) == (files is None):
            raise InputError("checked: give edits or files")
        self.columns: dict[str, Any] = {"edits": edits, "files": files or "files", "start": start, "target": target}
        self.bundles = DiagnosticsCache(PythonSyntax() if server is None else LanguageServer(server), store)
        self.needs = {"episode", *(name for name in (edits, files, start, target) if name is not None)}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with the facts."""
        return check_turns(turns, self.bundles, **self.columns)
