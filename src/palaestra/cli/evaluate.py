"""`palaestra evaluate`: success, score and paired differences of anybody's play."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from palaestra.cli.app import Json, app, out, show


@app.command()
def evaluate(
    path: Annotated[
        Path, typer.Argument(metavar="TURNS", exists=True, help="table of turns, directory of them, or a run")
    ],
    baseline: Annotated[str | None, typer.Option(help="system that the others are compared with")] = None,
    as_json: Json = False,
) -> None:
    """Success, score, pass@k and paired differences of any table of turns."""
    from palaestra.proof import evaluate as compare_systems

    rows = compare_systems(path, baseline)
    if as_json:
        show(rows)
        return
    table = Table("system", "tasks × trials", "success", "score", "errors", box=None)
    for row in rows:
        size = f"{row['tasks']} × {row['trials']}"
        errors = str(sum(row["errors"].values()))
        table.add_row(row["system"], size, _interval(row["success"], 100, " %"), _interval(row["score"]), errors)
    out.print(table)
    for row in rows:
        print(f"{row['system']}: {row['verdict']}")


def _interval(estimate: dict[str, Any], scale: float = 1.0, unit: str = "") -> str:
    if estimate["mean"] is None:
        return "–"
    mean, low, high = (
        f"{scale * estimate[key]:.3g}" if estimate[key] is not None else "?" for key in ("mean", "low", "high")
    )
    return f"{mean}{unit} [{low}, {high}]"
