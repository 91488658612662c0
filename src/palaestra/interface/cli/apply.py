"""`palaestra apply`: any signal on any table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from palaestra.errors import InputError
from palaestra.interface.cli.app import Modules, app, bring, load_turns, say


@app.command()
def apply(
    expression: Annotated[str, typer.Argument(metavar="SIGNAL", help="e.g. 'gigpo(gamma=0.95)'")],
    turns: Annotated[
        Path, typer.Argument(metavar="TURNS.parquet", exists=True, help="a table of turns, or a directory of them")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="where to write the table with the new column")],
    name: Annotated[str, typer.Option(help="name of the new column")] = "advantage",
    explain: Annotated[bool, typer.Option("--explain", help="print what the signal ranged over")] = False,
    modules: Modules = None,
) -> None:
    """Add any signal to any table of turns."""
    import polars as pl

    from palaestra import parse
    from palaestra.algebra.turns import SCHEMA

    if not name:
        raise InputError("--name: give the new column a name")
    if name in SCHEMA and SCHEMA[name].dtype not in (pl.Float64, pl.Boolean):
        raise InputError(f"--name {name}: that column says {SCHEMA[name].meaning}; give the new one another name")
    bring(modules)
    table = load_turns(turns)
    signal = parse(expression, columns=table.columns)
    if explain:
        say(signal.explain(table))
    table.with_column(**{name: signal}).save(out)
    say(f"{out}: {len(table)} turns, column {name!r}")
