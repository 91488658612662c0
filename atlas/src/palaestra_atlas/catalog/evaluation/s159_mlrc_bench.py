"""[159] MLRC-Bench (arXiv 2504.09702): how much of the gap is closed, and how much the best of 8 runs closes by luck.

Nothing improves; the noise of a run is 3 % of the gap. The leaderboard's maximum over runs reports progress all the
same, the choice on development tasks does not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from scipy import stats

from palaestra.evaluation.anchors import capability_level, luck_of_the_best, normalise_between
from palaestra.evaluation.reducers import per_task
from palaestra_atlas.reproductions import Outcome, reproduction

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


@reproduction(
    159,
    claim="The maximum over 8 runs closes more than 4 % of the gap when nothing improved (an empty 'level 5'); the run "
    "that was best on development tasks closes nothing.",
    baseline="the maximum over runs on the test, as on the leaderboard",
    criterion=".510 closes 4.96 % (level 5) and 14.78 closes 9.30 % (level 6); the 95 % interval of the maximum lies "
    "above 0 and holds 4.27; that of the choice on development tasks covers 0",
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
        margin = stats.t.ppf(0.975, len(found) - 1) * found.std(ddof=1) / np.sqrt(len(found))
        limits[name] = (float(found.mean() - margin), float(found.mean() + margin))
        measured |= {name: float(found.mean()), f"{name}_low": limits[name][0], f"{name}_high": limits[name][1]}
    measured["expected_maximum"] = luck_of_the_best(RUNS, gap_noise=100 * NOISE)
    low, high = limits["maximum"]
    exact = abs(shares[0] - 4.96) < 0.005 and abs(shares[1] - 9.30) < 0.005 and levels == [5, 6]
    empty = limits["chosen_on_dev"][0] <= 0 <= limits["chosen_on_dev"][1]
    return Outcome(measured, bool(exact and 0 < low <= measured["expected_maximum"] <= high and empty))
