"""A table of a million tasks: what filtering and sampling, keeping the books, and asking a question of a file cost.

An iteration chooses 64 tasks whose chance of success lies in a band, plays them eight times each (here: a table made
up), and counts the answers; beside it the loop over a list of dictionaries that a script would write. Then the share of
a training iteration of 512 episodes that goes into its table of tasks and into choosing rows: the recipe `from-nothing`
with the half of its rows that won most. Times are CPU times of one thread, that share excepted, which is of wall times.

Run: python benchmarks/task_table.py
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ[name] = "1"

import sys
import tempfile
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

from palaestra.algebra.turns import Turns
from palaestra.envs import dataset
from palaestra.learning.stages.stage import Context
from palaestra.learning.stages.task_table import task_table
from palaestra.learning.task_table import TASKS
from palaestra.play.executors import Plan
from palaestra.runs.inline import learn

TASKS_KNOWN, GROUPS, EPISODES, ITERATIONS, LOW, HIGH = 10**6, 64, 8, 20, 0.3, 0.7
MOST, MOST_SHARE = 0.050, 0.05


def known(rng: np.random.Generator) -> pl.DataFrame:
    """A table of tasks with a difficulty each."""
    many = pl.int_range(TASKS_KNOWN, eager=True)
    one = {"source": "env", "status": "given", "created_at": 0, "updated_at": 0}
    whole = pl.select(
        id=pl.format("t:{}", many), text=pl.format("What is the sum of {} and one?", many), seed=many,
        difficulty=pl.Series(rng.random(TASKS_KNOWN)), n=pl.Series(rng.integers(1, 9, TASKS_KNOWN)),
    )  # fmt: skip
    rest = {name: pl.lit(one.get(name), kind) for name, kind in TASKS.items() if name not in whole.columns}
    return whole.with_columns(**rest).select(pl.col(name).cast(kind) for name, kind in TASKS.items())


def played(seeds: list[int], rng: np.random.Generator) -> Turns:
    """A row for each episode of these tasks."""
    rows = len(seeds) * EPISODES
    seed = np.repeat(seeds, EPISODES)
    return Turns(
        {
            "group": np.repeat(np.arange(len(seeds)), EPISODES),
            "episode": np.arange(rows),
            "turn": np.zeros(rows, int),
            "agent": ["solver"] * rows,
            "task": [f"t:{each}" for each in seed],
            "seed": seed,
            "observation": [f"What is the sum of {each} and one?" for each in seed],
            "success": rng.random(rows) < 0.5,
        }
    )


def looped(tasks: list[dict[str, Any]], rng: np.random.Generator) -> float:
    """Seconds to filter and sample as scripts do."""
    start = process_time()
    band = [each for each in tasks if LOW <= 1 - each["difficulty"] <= HIGH]
    [band[at] for at in rng.choice(len(band), GROUPS, replace=False)]
    return process_time() - start


def share() -> float:
    """Share of an iteration of 512 episodes that goes into `task_table` and `keep`, the median of five."""
    shorter = {
        "stages": ["task_table()", "keep('reward', quantile=0.5, ties='keep')"],
        "train": {"iterations": 6, "groups": 64, "group_size": 8, "budget": None},
    }  # fmt: skip
    ends = [0.0]
    spent = []
    for row in learn("from-nothing", shorter).lines:
        ends.append(row["wall_seconds"])
        spent.append(sum(each["seconds"] for each in row["stages"].values()) / (ends[-1] - ends[-2]))
    return float(np.median(spent[1:]))


def main() -> int:
    """Measure, print, and say whether the criteria hold: 0 if they all do."""
    console, rng = Console(width=110), np.random.default_rng(0)
    stage = task_table(sample=f"learnable(low={LOW}, high={HIGH})", share=1.0)
    stage.table = known(rng)
    context: Any = Context(rng, 1, None, None, None)  # type: ignore[arg-type]
    choosing, keeping, outside = [], [], 0
    for iteration in range(1, ITERATIONS + 1):
        start = process_time()
        plan = stage.plan(Plan(GROUPS, EPISODES, iteration=iteration), context)
        choosing.append(process_time() - start)
        chosen = [int(seed) for seed in plan.env_seeds or () if seed is not None]
        hard = stage.table["difficulty"].gather(chosen) if iteration == 1 else None
        outside += 0 if hard is None else int((~(1 - hard).is_between(LOW, HIGH)).sum())
        turns = played(chosen, rng)
        context.iteration = iteration
        start = process_time()
        stage(turns, context)
        keeping.append(process_time() - start)
    slow = looped(known(rng).select("id", "difficulty").to_dicts(), rng)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        path = str(Path(folder, "tasks.parquet"))
        stage.table.select(prompt="text", answer="seed").write_parquet(path)
        start = process_time()
        env = dataset(path, score="number")()
        index = process_time() - start
        start = process_time()
        for seed in range(1000):
            env.reset(seed * 997)
        ask = (process_time() - start) / 1000
    choose, keep = float(np.median(choosing)), float(np.median(keeping))
    table = Table(f"{TASKS_KNOWN:,} tasks, {GROUPS} groups of {EPISODES}", "ms an iteration", "ratio")
    table.add_row("a loop over dictionaries: filter and sample", f"{slow * 1e3:,.1f}", "1×")
    table.add_row("ours: filter and sample", f"{choose * 1e3:,.1f}", f"{slow / choose:.0f}×")
    table.add_row("ours: count the answers", f"{keep * 1e3:,.1f}", "")
    table.add_row("index of a file, once", f"{index * 1e3:,.0f}", "")
    table.add_row("a question of the file", f"{ask * 1e3:,.3f}", "")
    part = share()
    table.add_row("tasks and selection, of an iteration of 512 episodes", "", f"{part:.1%}")
    console.print(table)
    verdicts = [
        (f"filter and sample in {choose * 1e3:.1f} ms, at most {MOST * 1e3:.0f}", choose <= MOST),
        (f"the answers are counted in {keep * 1e3:.1f} ms, at most {2 * MOST * 1e3:.0f}", keep <= 2 * MOST),
        (f"tasks and selection take {part:.1%} of an iteration, at most {MOST_SHARE:.0%}", part <= MOST_SHARE),
        (f"{outside} of the chosen tasks are outside of the band", outside == 0),
        (f"a question of the file in {ask * 1e6:.0f} µs, at most 200", ask <= 200e-6),
    ]
    for text, holds in verdicts:
        console.print(f"{'PASS' if holds else 'FAIL'}  {text}")
    return 0 if all(holds for _, holds in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
