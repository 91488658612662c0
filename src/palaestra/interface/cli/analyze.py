"""`palaestra analyze`: a question to a file, by name."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, Any

import typer

from palaestra.foundation.files import plain
from palaestra.interface.cli.app import Json, app, out, prefix_errors, show, table_of


@app.command(short_help="Ask a file a question by name.")
def analyze(
    question: Annotated[
        str, typer.Argument(metavar="ANALYSIS", help="e.g. 'rubric(\"net\")' or swiss; `names analysis` lists all")
    ],
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE…", help="tables: .csv, .parquet, .jsonl …; some need none")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a registered analysis, named by a text, on files and print its table: rubrics, sequences, tournaments."""
    from palaestra.evaluation.analyses import ANALYSES
    from palaestra.evaluation.analyses import analyze as answer

    ANALYSES.build(question)  # a wrong name is no fault of the files
    with prefix_errors(files) if files else contextlib.nullcontext():
        rows = answer(question, *(files or [])).to_dicts()
    if as_json:
        show(plain(rows))
        return
    shown = table_of(*rows[0] if rows else ["nothing"])
    for row in rows:
        shown.add_row(*map(_text, row.values()))
    out.print(shown)


def _text(x: Any) -> str:
    return "–" if plain(x) is None else f"{x:.4g}" if isinstance(x, float) else str(x)
