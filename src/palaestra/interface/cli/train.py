"""`palaestra train`, `compare`, `report`, `recipes`: from a recipe to a proof."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from palaestra.errors import InputError
from palaestra.interface.cli.app import (
    Jobs,
    Json,
    Overrides,
    RecipeName,
    Trust,
    app,
    err,
    hint,
    modules_here,
    say,
    show,
    table_of,
)
from palaestra.interface.cli.app import out as console

On = Annotated[
    str | None,
    typer.Option("--on", metavar="EXECUTOR", help="where play happens: processes, ray, 'ray(address=\"auto\")'"),
]


Learner = Annotated[
    str | None,
    typer.Option("--learner", metavar="PLACE", help="where it learns: ray, 'ray(cpus=2, gpus=1)' [default: here]"),
]


def with_executor(overrides: list[str] | None, on: str | None) -> list[str]:
    """List of the overrides as typed, with `--on` added as the override `play.executor`."""
    return [*(overrides or []), *([] if on is None else [f"play.executor={on}"])]


def modules_of(typed: list[str] | None, trust: bool) -> None:
    """Put the current folder on the import path if code is trusted, or if the user typed a `module:name`."""
    if trust or any(":" in text for text in typed or ()):
        modules_here()


@app.command(short_help="Train a team and compare it with its start.")
def train(
    recipe: RecipeName,
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option("--out", help="run directory [default: runs/RECIPE]")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on where an interrupted run stopped")] = False,
    on: On = None,
    jobs: Jobs = None,
    ranks: Annotated[
        int, typer.Option(min=1, help="processes that share the updates of a seed, as learn.devices says")
    ] = 1,
    learner: Learner = None,
    trust: Trust = False,
) -> None:
    """Train a team by a recipe, compare it with the team it started from, write the report."""
    from palaestra.learning import need_torch
    from palaestra.runs.recipe import load

    overrides = with_executor(overrides, on)
    modules_of(overrides, trust)
    loaded = load(recipe, overrides, trust=trust)
    need_torch()
    from palaestra.interface.library import (
        train as run_train,
    )  # takes seconds; what is wrong in the recipe is said first
    from palaestra.runs.ranks import followed

    if followed(loaded):  # rank 0 plays, writes and says the rest
        return
    directory = out or Path("runs") / loaded.name
    summary = run_train(loaded, directory, resume=resume, jobs=jobs, ranks=ranks, console=err, learner=learner)
    say(summary["verdict"])
    for name, found in summary["attacks"].items():
        say(f"attack {name}: {found['verdict']}")
    say(f"report: {directory / 'report.html'}")
    if summary["unjudged"]:
        hint(summary["unjudged"])


@app.command(short_help="Train variants of a recipe side by side.")
def compare(
    recipe: RecipeName,
    overrides: Overrides = None,
    vary: Annotated[str, typer.Option(metavar="FIELD=VALUE,VALUE…", help="e.g. credit=grpo,dr_mas,gigpo")] = "",
    seeds: Annotated[
        int | None, typer.Option(min=1, help="number of seeds of each variant [default: the recipe's, or 3]")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget", metavar="UNIT=NUMBER", help="what each may spend on training: tokens=2e5, turns=5000, price=2.5"
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="directory [default: runs/RECIPE-compare]")] = None,
    on: On = None,
    jobs: Jobs = None,
    learner: Learner = None,
    trust: Trust = False,
) -> None:
    """Train variants of a recipe with the same seeds, or under the same budget, and say which differences are real.

    The same command again goes on where it was interrupted.
    """
    from palaestra.learning import need_torch
    from palaestra.runs.recipe import load

    overrides = with_executor(overrides, on)
    modules_of([*overrides, vary], trust)
    load(recipe, overrides, trust=trust)
    need_torch()
    from palaestra.interface.library import compare as run_compare

    directory = out or Path("runs") / f"{Path(recipe).stem}-compare"
    result = run_compare(
        recipe,
        overrides,
        vary=vary,
        seeds=seeds,
        directory=directory,
        budget=budget,
        jobs=jobs,
        console=err,
        trust=trust,
        learner=learner,
    )
    if said := result.get("budget_said"):
        say(said)
    for pair in result["pairs"]:
        say(pair["verdict"])
    say(f"report: {directory / 'report.html'}")


@app.command(short_help="Write the page of a run or a comparison.")
def report(
    directory: Annotated[
        Path,
        typer.Argument(metavar="RUN", exists=True, help="what `train` or `compare` wrote, or a folder of any logs"),
    ],
) -> None:
    """Write the HTML report of a folder: of a run, of a comparison, or of the evaluation of any logs."""
    from palaestra.interface.report import write_comparison, write_report

    ours = ("comparison.json", "recipe.yaml", "*/recipe.yaml", "summary.json", "seed-*")
    if not any(any(directory.glob(name)) for name in ours):
        from palaestra.interface.cli.evaluate import evaluation_page

        folder = directory if directory.is_dir() else directory.parent
        say(str(evaluation_page([str(directory)], folder / "report.html")))
        return
    write = write_comparison if (directory / "comparison.json").exists() else write_report
    say(str(write(directory)))


@app.command(short_help="List the recipes that ship, or print one.")
def recipes(
    name: Annotated[str | None, typer.Argument(metavar="RECIPE", help="print this one, as YAML to start from")] = None,
    explained: Annotated[bool, typer.Option("--explain", help="with what each field means, and its default")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="print the JSON schema, for editors")] = False,
    steps: Annotated[bool, typer.Option("--steps", help="as steps: construct, filter, relabel, fit, schedule")] = False,
    as_json: Json = False,
) -> None:
    """List the recipes that ship, or print one; nothing that a recipe names is run."""
    from palaestra.runs.recipe import look, names

    if schema:
        from palaestra.runs.field_docs import schema as schema_of

        show(schema_of())
        return
    if steps:
        _steps([name] if name else names(), as_json)
        return
    if name:
        recipe = look(name)
        if as_json:
            show(recipe.model_dump(mode="json"))
        elif explained:
            from palaestra.runs.field_docs import explain

            say(explain(recipe).removesuffix("\n"))
        else:
            say(recipe.dump().removesuffix("\n"))
        return
    if explained:
        raise InputError("recipes --explain: name the recipe, e.g. palaestra recipes corridor --explain")
    rows = [(each, look(each).description) for each in names()]
    if as_json:
        show([{"name": each, "description": text} for each, text in rows])
        return
    table = table_of("recipe", "what it trains and proves")
    for each, text in rows:
        table.add_row(each, " ".join(text.split()))
    console.print(table)


def _steps(listed: list[str], as_json: bool) -> None:
    """Recipes as steps, a row each; exit 1 if one does not read back."""
    from palaestra.runs.recipe import load
    from palaestra.runs.steps import row_of

    rows = [row_of(load(each)) for each in listed]
    if as_json:
        show(rows)
    else:
        shown = [each for each in rows[0] if each not in ("differs", "steps")]
        table = table_of(*shown)
        for row in rows:
            table.add_row(*(", ".join(x) if isinstance(x := row[each], list) else str(x) for each in shown))
        console.print(table)
    if any(row["differs"] for row in rows):
        raise typer.Exit(1)
