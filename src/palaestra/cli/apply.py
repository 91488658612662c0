"""`palaestra apply`: any signal on any table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from palaestra.cli.app import app
from palaestra.errors import InputError


@app.command()
def apply(
    expression: Annotated[str, typer.Argument(help='a signal, e.g. "gigpo(gamma=0.95)"')],
    turns: Annotated[
        Path, typer.Argument(metavar="TURNS.parquet", exists=True, help="a table of turns, or a directory of them")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="where to write the table with the new column")],
    name: Annotated[str, typer.Option(help="name of the new column")] = "advantage",
    explain: Annotated[bool, typer.Option("--explain", help="print what the signal ranged over")] = False,
) -> None:
    """Add any signal to any table of turns."""
    from palaestra import Turns, parse

    if not name:
        raise InputError("--name: give the new column a name")
    table = Turns.load(turns)
    signal = parse(expression, columns=table.columns)
    table = table.with_column(**{name: signal})
    if explain:
        print(signal.explain(table))
    table.save(out)
    print(f"{out}: {len(table)} turns, column {name!r}")
