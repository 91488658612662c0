"""The classics on their tasks: every method of a recipe, several seeds, equally many env steps, with intervals.

A recipe of docs/classics.md is one method and, as controls, the others. Each of them is trained by itself until another
iteration would exceed `--steps` env steps (all agents act at every step, so that they take as many turns as there are
agents times steps), and plays the recipe's held-out tasks, which are the same for all. What is printed: reward of a
training episode, mean over agents, in the four quarters of training; the measure of the held-out tasks, and its
difference from the first method's with the same seeds. Intervals are Student's t over seeds, 95 %.

Q-learners explore less from update to update, on held-out tasks too: in a short training `--explore` must be small,
half of the updates or less. Every run has a directory below `--out`, named by all of its settings. What is there is
not run again, and what was interrupted goes on.

Run: python benchmarks/classics.py hanabi --steps 20000 [--explore 15] [--methods vdn,qmix] [--seeds 1000,1001] [A=B …]
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ[name] = "1"

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.stats import t

from palaestra.algebra.turns import Turns
from palaestra.evaluation import trials
from palaestra.runs.build import resolve
from palaestra.runs.recipe import Recipe, alone, load, override
from palaestra.runs.seed import digest, run_seed

OWN = {"foraging": "vdn"}
"""The method of a recipe itself; of all others MAPPO."""
ENDLESS = 1_000_000


class Run(NamedTuple):
    """Result of a method and seed: env steps, CPU seconds of training, curve in quarters, measure before and after."""

    steps: float
    seconds: float
    quarters: np.ndarray
    before: float
    after: float


def methods(name: str) -> list[str]:
    """The recipe's own method, then its controls that are trained."""
    controls = load(name).evaluation.controls
    return [OWN.get(name, "mappo"), *(each for each, part in controls.items() if part.train)]


def recipe_of(name: str, method: str, steps: int, explore: int | None, changes: Sequence[str]) -> Recipe:
    """The recipe with one method and the budget of env steps, without looks during training."""
    recipe = load(name, changes)
    agents = len(resolve(recipe).agents)
    if method != OWN.get(name, "mappo"):
        recipe = override(recipe, recipe.evaluation.controls[method].train or {})
    learners = [each for each, part in recipe.policies.items() if part.kind == "q_network"] if explore else []
    for each in learners:
        recipe = override(recipe, {"policies": {each: {"options": {"explore": explore}}}})
    train = {"iterations": ENDLESS, "budget": {"turns": steps * agents}, "evaluate_every": ENDLESS}
    return override(alone(recipe), {"train": train, "evaluation": {"look_tasks": 2, "look_trials": 1}})


def run(recipe: Recipe, seed: int, directory: Path) -> Run:
    """Train and prove one seed, or read what it left."""
    result = run_seed(recipe, seed, directory, resume=True)
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    table = trials(Turns.load(directory / "evaluation.parquet"))
    measured = {system[0]: float(np.mean(each["score"].to_numpy())) for system, each in table.group_by("system")}
    quarters = [float(np.mean(part)) for part in np.array_split([line["reward"] for line in lines], 4)]
    steps = sum(line["turns"] for line in lines) / len(resolve(recipe).agents)
    return Run(steps, result["train_cpu_seconds"], np.array(quarters), measured["before"], measured["after"])


def interval(values: Sequence[float]) -> str:
    """Mean, and half of its 95 % interval by Student's t."""
    if len(values) < 2:
        return f"{np.mean(values):.2f}"
    half = t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
    return f"{np.mean(values):.2f} ± {half:.2f}"


def show(name: str, found: dict[str, list[Run]], console: Console) -> None:
    """Print a row for each method."""
    first = next(iter(found.values()))
    table = Table(title=f"{name}: before {np.mean([each.before for each in first]):.2f}")
    for column in ("method", "seeds", "env steps", "CPU s", "training, by quarters", "held out", "less the first"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for method, runs in found.items():
        after = [each.after for each in runs]
        table.add_row(
            method,
            str(len(runs)),
            f"{np.mean([each.steps for each in runs]):,.0f}",
            f"{np.mean([each.seconds for each in runs]):.0f}",
            ", ".join(f"{value:.2f}" for value in np.mean([each.quarters for each in runs], 0)),
            interval(after),
            "" if runs is first else interval([b - a.after for a, b in zip(first, after, strict=False)]),
        )
    console.print(table)


def main() -> None:
    """Run the grid and print a table for each recipe."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "recipes",
        nargs="*",
        default=["hanabi"],
        help="spread, reference, foraging, hanabi, overcooked; then field=value",
    )
    parser.add_argument("--steps", type=int, default=4000, help="env steps of a training")
    parser.add_argument("--explore", type=int, help="updates over which Q-learners explore less; default: the recipe's")
    parser.add_argument("--methods", help="some of the recipe's, with commas; default: all")
    parser.add_argument("--seeds", default="1000,1001,1002")
    parser.add_argument("--out", type=Path, default=Path("runs/classics"))
    asked = parser.parse_args()
    console = Console(width=140)
    changes = [each for each in asked.recipes if "=" in each]
    for name in (each for each in asked.recipes if "=" not in each):
        chosen = asked.methods.split(",") if asked.methods else methods(name)
        found: dict[str, list[Run]] = {method: [] for method in chosen}
        for seed in map(int, asked.seeds.split(",")):  # all methods of a seed first: a grid that is cut stays balanced
            for method in chosen:
                recipe = recipe_of(name, method, asked.steps, asked.explore, changes)
                folder = asked.out / name / f"{method}-{digest(recipe)[:8]}" / f"seed-{seed}"
                found[method].append(run(recipe, seed, folder))
                last = found[method][-1]
                console.print(f"{name} {method} {seed}: {last.before:.2f} to {last.after:.2f}, {last.seconds:.0f} s")
        show(name, found, console)


if __name__ == "__main__":
    main()
