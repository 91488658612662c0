"""The command line. Results go to stdout, progress and errors to stderr; exit codes: 0 done, 1 failure, 2 bad input."""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from palaestra import __version__
from palaestra.errors import InputError, PalaestraError

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
out = Console()
err = Console(stderr=True)

RecipeName = Annotated[str, typer.Argument(metavar="RECIPE", help="a shipped recipe (see `recipes`) or a .yaml file")]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="[FIELD=VALUE]…", help="e.g. train.iterations=20")]
Jobs = Annotated[int | None, typer.Option("--jobs", min=1, help="seeds at once [default: number of cores]")]
Json = Annotated[bool, typer.Option("--json", help="print JSON")]


def show(data: Any) -> None:
    """JSON on stdout, never wrapped."""
    print(json.dumps(data, ensure_ascii=False, indent=2, allow_nan=False))


def _version(wanted: bool) -> None:
    if wanted:
        print(f"palaestra {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="print it")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="show where an error comes from; goes anywhere")] = False,
) -> None:
    """Train teams of agents with reinforcement learning, and prove that they got better."""


@app.command()
def train(
    recipe: RecipeName,
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option("--out", help="run directory [default: runs/RECIPE]")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on where an interrupted run stopped")] = False,
    jobs: Jobs = None,
) -> None:
    """Train a team, compare it with the team it started from, write the report."""
    from palaestra.recipe import load

    loaded = load(recipe, overrides or [])
    from palaestra.run import train as run_train  # takes seconds, so what is wrong with the recipe is said before

    directory = out or Path("runs") / loaded.name
    summary = run_train(loaded, directory, resume=resume, jobs=jobs, console=err)
    print(summary["verdict"])
    print(f"report: {directory / 'report.html'}")


@app.command()
def compare(
    recipe: RecipeName,
    overrides: Overrides = None,
    vary: Annotated[str, typer.Option(metavar="FIELD=VALUE,VALUE…", help="e.g. credit=grpo,dr_mas,gigpo")] = "",
    seeds: Annotated[int, typer.Option(min=1, help="number of seeds of each variant")] = 3,
    out: Annotated[Path | None, typer.Option("--out", help="directory [default: runs/RECIPE-compare]")] = None,
    jobs: Jobs = None,
) -> None:
    """Train variants of a recipe under one budget and say which differences are real.

    The same command again goes on where it was interrupted.
    """
    from palaestra.recipe import load

    load(recipe, overrides or [])
    from palaestra.run import compare as run_compare

    directory = out or Path("runs") / f"{Path(recipe).stem}-compare"
    result = run_compare(recipe, overrides or [], vary=vary, seeds=seeds, directory=directory, jobs=jobs, console=err)
    for pair in result["pairs"]:
        print(pair["verdict"])
    print(f"report: {directory / 'report.html'}")


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


@app.command()
def report(
    directory: Annotated[
        Path, typer.Argument(metavar="RUN", exists=True, help="a directory that `train` or `compare` wrote")
    ],
) -> None:
    """Write the HTML report of a run again."""
    from palaestra.report import write_comparison, write_report

    write = write_comparison if (directory / "comparison.json").exists() else write_report
    print(write(directory))


@app.command()
def recipes(
    name: Annotated[str | None, typer.Argument(help="print this recipe")] = None,
    as_json: Json = False,
) -> None:
    """List the recipes that ship, or print one."""
    from palaestra.recipe import load, names

    if name:
        print(load(name).dump(), end="")
        return
    rows = [(each, load(each).description) for each in names()]
    if as_json:
        show([{"name": each, "description": text} for each, text in rows])
        return
    table = Table("recipe", "what it trains and proves", box=None)
    for each, text in rows:
        table.add_row(each, " ".join(text.split()))
    out.print(table)


@app.command()
def systems(
    identity: Annotated[str | None, typer.Argument(metavar="[ID]", help="show this system (id or name)")] = None,
    as_json: Json = False,
) -> None:
    """The atlas: published systems and what each became here."""
    from palaestra.atlas import system
    from palaestra.atlas import systems as all_systems
    from palaestra.atlas.render import page, table

    if identity is not None:
        one = system(identity)
        show(one.to_dict()) if as_json else out.print(page(one))
    else:
        everything = all_systems()
        show([each.to_dict() for each in everything]) if as_json else out.print(table(everything))


@app.command()
def reproduce(
    identity: Annotated[int | None, typer.Argument(metavar="[ID]", help="system to reproduce")] = None,
    everything: Annotated[bool, typer.Option("--all", help="all systems that have a reproduction")] = False,
    as_json: Json = False,
) -> None:
    """Run the experiment that shows that a system's mechanism works; exit 0 iff its criterion holds."""
    from palaestra.reproductions import all_ids
    from palaestra.reproductions import reproduce as run_one

    if (identity is None) == (not everything):
        raise InputError("reproduce: give the id of one system, or --all")
    results = []
    for each in [identity] if identity is not None else all_ids():
        with err.status(f"reproducing [{each}]"):
            results.append(run_one(each))
        if not as_json:
            row = results[-1].to_dict()
            out.print(f"[{row['id']}] {row['claim']}", markup=False, highlight=False)
            for field in ("baseline", "measured", "criterion"):
                out.print(f"    {field}: {row[field]}", markup=False, highlight=False)
            out.print(f"    {'holds' if row['holds'] else 'does NOT hold'} ({row['seconds']:.1f} s)", markup=False)
    if as_json:
        show([r.to_dict() for r in results] if everything else results[0].to_dict())
    if not all(result.holds for result in results):
        raise typer.Exit(1)


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


def main(arguments: list[str] | None = None) -> None:
    """Entry point: turns errors into one line and an exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"] or ["--help"]
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # where `module:name` of a recipe is likely to be; last, so that it hides nothing
    try:
        code = app(arguments, standalone_mode=False)
    except PalaestraError as error:
        code = _fail(error, str(error), error.exit_code, debug)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except Exception as error:
        usage = getattr(error, "format_message", None)  # what typer raises for a wrong command line
        unexpected = f"{type(error).__name__}: {error} (run again with --debug for the traceback)"
        code = _fail(error, usage() if usage else unexpected, 2 if usage else 1, debug)
    if code == 130:  # also what typer returns for an interruption
        err.print("interrupted; what was begun in a run directory goes on with --resume")
    sys.exit(code or 0)


def _fail(error: Exception, message: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    err.print(f"error: {message}", markup=False, highlight=False, soft_wrap=True, style="red")
    return code


if __name__ == "__main__":
    main()
