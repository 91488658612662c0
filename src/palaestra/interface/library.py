"""The commands as functions: the same work, from Python, with the same pages at the end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.interface.report import write_comparison, write_report
from palaestra.runs import jobs as runs
from palaestra.runs.recipe import Recipe, load

if TYPE_CHECKING:
    from rich.console import Console


def train(
    recipe: Recipe | str | Path,
    directory: str | Path | None = None,
    *,
    overrides: Sequence[str] = (),
    resume: bool = False,
    jobs: int | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Train a team on every seed, compare it with its start, write `summary.json` and `report.html`.

    recipe: a shipped recipe by name, a file, or a `Recipe`. directory: default runs/NAME. jobs: seeds at once.

    Returns:
        The summary, as in `summary.json`.

    Raises:
        InputError: the recipe asks for what is not there, or the directory holds another run. Nothing was played.
        PalaestraError: what stopped a seed.
    """
    made = recipe if isinstance(recipe, Recipe) else load(recipe, overrides)
    folder = Path("runs") / made.name if directory is None else Path(directory)
    summary = runs.train(made, folder, resume=resume, jobs=jobs, console=console)
    write_report(folder)
    return summary


def compare(
    recipe: str | Path,
    overrides: Sequence[str] = (),
    *,
    vary: str,
    seeds: int = 3,
    directory: str | Path | None = None,
    jobs: int | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Train variants of a recipe under one budget and the same seeds, and say of each pair which is better.

    vary: `credit=grpo,dr_mas`, a field and its values.

    Returns:
        The comparison, as in `comparison.json`.
    """
    folder = Path("runs") / f"{Path(recipe).stem}-compare" if directory is None else Path(directory)
    comparison = runs.compare(recipe, overrides, vary=vary, seeds=seeds, directory=folder, jobs=jobs, console=console)
    for name in comparison["variants"].values():
        write_report(folder / name)
    write_comparison(folder)
    return comparison
