"""`palaestra apply`: any signal on any table, and on folders of tables that no memory holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from palaestra.errors import InputError
from palaestra.interface.cli.app import Modules, app, hint, import_modules, load_turns, say


@app.command()
def apply(
    expression: Annotated[str, typer.Argument(metavar="SIGNAL", help="e.g. 'gigpo(gamma=0.95)'")],
    turns: Annotated[
        Path, typer.Argument(metavar="TURNS.parquet", exists=True, help="a table of turns, or a directory of them")
    ],
    out: Annotated[
        Path,
        typer.Option(
            "-o", "--out", help="where to write the table with the new column; for a directory another directory"
        ),
    ],
    name: Annotated[str, typer.Option(help="name of the new column")] = "advantage",
    reward: Annotated[
        str | None, typer.Option(metavar="SIGNAL", help="put this into the column reward first, for SIGNAL to read")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="print what the signal ranged over")] = False,
    workers: Annotated[int, typer.Option(min=1, help="of a directory: processes, each with a batch in memory")] = 1,
    together: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="TURNS",
            help="of a directory: an iteration of up to so many turns is read whole where a statistic ranges over it",
        ),
    ] = None,
    slim: Annotated[bool, typer.Option("--slim", help="of a directory: write only keys and new columns")] = False,
    modules: Modules = None,
) -> None:
    """Add any signal, given as text, as a new column to turns.

    A directory goes to a directory, file by file, in the memory of one file. The same command again goes on after a
    kill. To join a directory into one table, give a file: -o OUT.parquet.
    """
    import polars as pl

    from palaestra import parse
    from palaestra.algebra.turns import SCHEMA

    if not name:
        raise InputError("--name: give the new column a name")
    if name in SCHEMA and SCHEMA[name].dtype not in (pl.Float64, pl.Boolean):
        raise InputError(f"--name {name}: that column says {SCHEMA[name].meaning}; give the new one another name")
    if reward is not None and name == "reward":
        raise InputError("--reward: the new column is the reward itself; give it another --name")
    import_modules(modules)
    columns = {"reward": reward, name: expression} if reward is not None else {name: expression}
    if turns.is_dir() and out.suffix != ".parquet":
        from palaestra.evaluation.analyses import KINDS

        if out.is_file() or out.suffix in KINDS:
            raise InputError(f"--out {out}: a directory goes to a directory, or is joined into one OUT.parquet")
        _folder(columns, turns, out, workers, together, slim, modules, explain)
        return
    if workers > 1 or together is not None or slim:
        raise InputError("--workers, --together and --slim are for a directory that goes to a directory")
    if out.suffix not in ("", ".parquet"):
        raise InputError(f"--out {out}: a table of turns is written as .parquet")
    table = load_turns(turns)
    for new, text in columns.items():
        signal = parse(text, columns=table.columns)
        if explain:
            say(signal.explain(table))
        table = table.with_column(**{new: signal})
    table.save(out)
    say(f"{out}: {len(table)} turns, column {name!r}")


def _folder(
    columns: dict[str, str],
    source: Path,
    out: Path,
    workers: int,
    together: int | None,
    slim: bool,
    modules: list[str] | None,
    explain: bool,
) -> None:
    from palaestra.algebra import folders
    from palaestra.foundation import malloc

    if (source / "recipe.yaml").exists():
        raise InputError(f"{source}: a run holds turns of several kinds; give one, e.g. {source / 'seed-0' / 'turns'}")
    if explain:
        raise InputError("--explain counts samples in a table; give one file of the directory")
    malloc.keep_freed()  # arrays of one file are as large as those of the next
    done = folders.apply(
        columns,
        source,
        out,
        workers=workers,
        together=folders.TOGETHER if together is None else together,
        slim=slim,
        modules=modules or (),
        progress=True,
    )
    if done.passes > 1:
        hint(f"a statistic ranges over more than one file: {done.passes} passes, the last of which applies it")
    if done.found:
        hint(f"{done.found} of {done.files} files were finished before")
    say(f"{out}: {done.turns} turns in {done.files} files, column {[*columns][-1]!r}")
