"""[159] MLRC-Bench (arXiv 2504.09702): how much of the gap is closed, and how much the best of 8 runs closes by luck.

Nothing improves; the noise of a run is 3 % of the gap. The leaderboard's maximum over runs reports progress all the
same, the choice on development tasks does not. In the line half of the tasks do improve, and each run has snapshots.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from scipy import stats

from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.anchors import capability_level, luck_of_the_best, normalise_between
from palaestra.evaluation.reducers import per_task
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

BASELINE, HUMAN, RUNS, NOISE = 0.4933, 0.83, 8, 0.03


def closed(select: str, studies: int, seed: int) -> np.ndarray:
    """Per cent of the gap that the chosen run of each study closes on the test; nothing is better than the baseline."""
    rng = np.random.default_rng(seed)
    gap = NOISE * (HUMAN - BASELINE)
    test, dev = BASELINE + gap * rng.standard_normal((2, studies * RUNS))
    study, run = (axis.ravel() for axis in np.indices((studies, RUNS)))
    trials = pl.DataFrame({"run": "run", "task": study.astype(str), "trial": run, "score": test, "dev": dev})
    best = per_task(trials, "best_of", RUNS, value="score", select=select)["value"].to_numpy()
    return np.asarray(100 * normalise_between(best, BASELINE, HUMAN))


def answered(text: str, table: pl.DataFrame) -> pl.DataFrame:
    """What `palaestra analyze` makes of a table of runs."""
    with tempfile.TemporaryDirectory() as folder:
        table.write_csv(Path(folder) / "runs.csv")
        return analyze(text, Path(folder) / "runs.csv")


@exact
def gaps_and_levels() -> None:
    """The card's two gaps, 4.96 and 9.30 per cent, and all six levels."""
    anchors = {"baseline": [0.4933, 9.3687], "reference": [0.83, 67.5732]}
    found = answered("levels", pl.DataFrame({"dev": [1.0, 99.0], "test": [0.510, 14.78], **anchors}))
    np.testing.assert_allclose(100 * found["closed"].to_numpy(), [4.96, 9.30], atol=0.005)
    assert found["level"].to_list() == [5, 6]
    assert abs(100 * normalise_between(0.510, 0.4933, 0.83) - 4.96) < 0.005
    every = pl.DataFrame({
        "dev": [None, 0.6, 0.4, 0.6, 0.6, 0.6], "test": [None, None, 0.4, 0.4, 0.51, 0.6],
        "baseline": 0.4933, "reference": 0.83,
    })  # fmt: skip
    assert answered("levels", every)["level"].to_list() == [1, 2, 3, 4, 5, 6]


@exact
def chosen_on_dev() -> None:
    """Of an agent without any improvement, the run that was best on development tasks closes nothing on the test."""
    found = closed("dev", 400, 0)
    assert abs(found.mean()) < 0.6, found.mean()
    assert abs(luck_of_the_best(RUNS, gap_noise=100 * NOISE) - 4.27) < 0.01
    rows = {"task": "a", "dev": [0.9, 0.1], "test": [0.5, 0.8], "baseline": 0.4, "reference": 0.9}
    assert abs(answered("gap_closed", pl.DataFrame(rows))["closed"].item() - 0.2) < 1e-9


@exact
def snapshots_of_runs() -> None:
    """Of each run the snapshot that was best on dev counts: they close .2 and .6 of the gap, and one run closes 0."""
    rows = {
        "task": ["a"] * 7, "run": [2, 1, 1, 2, 1, 3, 3], "snapshot": [0, 0, 1, 1, 2, 0, 1],
        "dev": [0.9, 0.8, 0.1, 0.2, None, 0.5, 0.6], "test": [0.7, 0.5, 0.9, 0.3, 0.8, 0.9, None],
        "baseline": 0.4, "reference": 0.9,
    }  # fmt: skip
    for reducer, closed in (("dev", 0.6), ("max", 0.6), ("mean", 0.8 / 3), ("median", 0.2)):
        found = answered(f"gap_closed({reducer!r})", pl.DataFrame(rows)).row(0, named=True)
        assert abs(found["closed"] - closed) < 1e-9, (reducer, found)
        assert (found["runs"], found["failed"]) == (3, 1)


@exact
def failed_runs_count() -> None:
    """Seven failed runs and one that closes .8 close .1 in the mean, and the reducer is named."""
    rows = {"task": "a", "dev": [None] * 7 + [0.9], "test": [None] * 7 + [0.8], "baseline": 0.0, "reference": 1.0}
    found = answered('gap_closed("mean")', pl.DataFrame(rows)).row(0, named=True)
    assert abs(found["closed"] - 0.1) < 1e-9, found
    assert (found["runs"], found["failed"]) == (8, 7)


def made(seed: int, folder: Path) -> None:
    """Eight runs of five snapshots on 60 tasks, noise 3 % of the gap: on half of the tasks a fifth of it is closed."""
    rng = np.random.default_rng(seed)
    task, run, snapshot = (axis.ravel() for axis in np.indices((60, RUNS, 5)))
    truth = np.where(task % 2 == 0, 0.0, 0.2)
    test, dev = BASELINE + (HUMAN - BASELINE) * (truth + NOISE * rng.standard_normal((2, len(task))))
    table = {"task": task.astype(str), "run": run, "snapshot": snapshot, "dev": dev, "test": test}
    pl.DataFrame(table | {"baseline": BASELINE, "reference": HUMAN}).write_csv(folder / "runs.csv")


def excess() -> Measure:
    """Mean share of the gap that is said to be closed beyond what was closed."""

    def measured(left: Left) -> list[float]:
        rows = json.loads(left.stdout)
        return [float(np.mean([row["closed"] - 0.2 * (int(row["task"]) % 2) for row in rows]))]

    return measured


@reproduction(
    159,
    claim="The maximum over 8 runs closes more than 4 % of the gap when nothing improved (an empty 'level 5'); the run "
    "that was best on development tasks closes nothing.",
    baseline="the maximum over runs on the test, as on the leaderboard",
    criterion=".510 closes 4.96 % (level 5) and 14.78 closes 9.30 % (level 6); the 99.9 % interval of the maximum lies "
    "above 0 and holds 4.27; that of the choice on development tasks covers 0 (of 95 % one of ten blocks misses one)",
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked levels, then 4000 studies."""
    table = pl.DataFrame({"dev": [1.0, 99.0], "test": [0.510, 14.78], "b": [BASELINE, 9.3687], "h": [HUMAN, 67.5732]})
    shares = 100 * normalise_between(table["test"].to_numpy(), table["b"].to_numpy(), table["h"].to_numpy())
    levels = table.select(capability_level("dev", "test", "b", "h")).to_series().to_list()
    measured = {"llm_merging": float(shares[0]), "backdoor": float(shares[1])}
    limits = {}
    for name, select in (("maximum", "score"), ("chosen_on_dev", "dev")):
        found = closed(select, 4000, seeds[0])
        margin = stats.t.ppf(0.9995, len(found) - 1) * found.std(ddof=1) / np.sqrt(len(found))
        limits[name] = (float(found.mean() - margin), float(found.mean() + margin))
        measured |= {name: float(found.mean()), f"{name}_low": limits[name][0], f"{name}_high": limits[name][1]}
    measured["expected_maximum"] = luck_of_the_best(RUNS, gap_noise=100 * NOISE)
    low, high = limits["maximum"]
    exact = abs(shares[0] - 4.96) < 0.005 and abs(shares[1] - 9.30) < 0.005 and levels == [5, 6]
    empty = limits["chosen_on_dev"][0] <= 0 <= limits["chosen_on_dev"][1]
    return Outcome(measured, bool(exact and 0 < low <= measured["expected_maximum"] <= high and empty))
