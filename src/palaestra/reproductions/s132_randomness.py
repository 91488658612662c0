"""[132] On Randomness in Agentic Evals (arXiv 2602.07150): one run of a benchmark says little; how many say enough.

Tasks have success rates from a beta distribution, runs are simulated. A run's score moves by what the task rates
predict, identical systems differ by points in single runs, and 9 runs each with the paper's formula keep that in check.
The intervals and tests that the project reports are checked on the way. Left out: SWE-bench.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.evaluation import (
    k_estimate,
    paired_difference,
    pass_at_k,
    pass_hat_k,
    run_spread,
    runs_needed,
    sign_flip_pvalue,
    success_interval,
)
from palaestra.reproductions import Outcome, reproduction

TASKS, RUNS, DRAWS = 500, 10, 2000
SHAPE = (0.5, 0.5)
COVERAGE_TASKS, COVERAGE_TRIALS = 60, 4


def table(success: np.ndarray, system: str) -> pl.DataFrame:
    """Trials from bool[tasks, trials]."""
    task, trial = (axis.ravel() for axis in np.indices(success.shape))
    columns = {"system": system, "run": "0", "task": task.astype(str), "trial": trial, "success": success.ravel()}
    return pl.DataFrame(columns)


def coverage(rng: np.random.Generator, draws: int) -> dict[str, float]:
    """Share of data sets whose interval holds the truth, for new tasks; and how often equal systems seem to differ."""
    hits = {"success": 0, "pass_hat_3": 0, "difference": 0}
    false = 0
    size = (COVERAGE_TASKS, COVERAGE_TRIALS)
    for _ in range(draws):
        p = rng.beta(2, 1, (COVERAGE_TASKS, 1))
        one, other = table(rng.random(size) < p, "a"), table(rng.random(size) < 0.9 * p, "b")
        found = [
            ("success", success_interval(one), 2 / 3),
            ("pass_hat_3", k_estimate(one, "pass_hat_k", 3), 2 / 5),
            ("difference", paired_difference(pl.concat([one, other]), "a", "b", resamples=500), 2 / 30),
        ]
        for name, interval, truth in found:
            hits[name] += interval.low <= truth <= interval.high
        change = (rng.random(size) < p).mean(1) - (rng.random(size) < p).mean(1)
        false += sign_flip_pvalue(change) <= 0.05
    return {f"coverage_{name}": hit / draws for name, hit in hits.items()} | {"type_I": false / draws}


@reproduction(
    132,
    claim="A single run of a benchmark moves by points, as its tasks' success rates predict; intervals over tasks and "
    "the formula for runs needed make comparisons mean something.",
    baseline="Two identical systems compared by one run each.",
    criterion="The spread of run scores is within 15 % of the prediction and above 1.2 points, the range over 10 runs "
    "above 3; identical systems differ by 2 points in over 25 % of single-run comparisons and in under 2 % with 9; "
    "runs needed are 36, 9 and 15; intervals cover 93-97 % and the test's type I error is below 6.5 %.",
    seeds=(0,),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Runs of a simulated benchmark, then data sets for coverage."""
    rng = np.random.default_rng(seeds[0])
    p = rng.beta(*SHAPE, TASKS)
    predicted = 100 * float(np.sqrt((p * (1 - p)).sum())) / TASKS
    scores = 100 * (rng.random((DRAWS, 2, 9, TASKS), dtype=np.float32) < p).mean(-1)
    one = np.abs(scores[:, 0, 0] - scores[:, 1, 0])
    nine = np.abs(scores[:, 0].mean(1) - scores[:, 1].mean(1))
    spread = run_spread(table(rng.random((TASKS, RUNS)) < p[:, None], "a"))
    exact = np.array([*pass_at_k(10, 7, [1, 2, 3, 5]), *pass_hat_k(10, 7, [2, 3, 5])])
    published = np.array([0.7, 0.9333, 0.9917, 1.0, 0.4667, 0.2917, 0.0833])
    measured = {
        "predicted_sd": predicted,
        "sd_of_run_scores": float(scores[:, 0, 0].std(ddof=1)),
        "predicted_from_ten_runs": 100 * spread.predicted,
        "range_over_ten_runs": 100 * spread.range,
        "identical_differ_by_2_single_run": float((one >= 2).mean()),
        "identical_differ_by_2_nine_runs": float((nine >= 2).mean()),
        "largest_error_of_reducers": float(np.abs(exact - published).max()),
        "runs_for_1_point": runs_needed(1.5, 1),
        "runs_for_2_points": runs_needed(1.5, 2),
        "runs_for_2_points_at_95": runs_needed(1.5, 2, power=0.95),
    } | coverage(rng, DRAWS)
    close = [abs(measured[name] / predicted - 1) < 0.15 for name in ("sd_of_run_scores", "predicted_from_ten_runs")]
    holds = (
        all(close)
        and measured["sd_of_run_scores"] > 1.2
        and measured["range_over_ten_runs"] > 3
        and measured["identical_differ_by_2_single_run"] > 0.25
        and measured["identical_differ_by_2_nine_runs"] < 0.02
        and measured["largest_error_of_reducers"] < 5e-5
        and [measured[f"runs_for_{what}"] for what in ("1_point", "2_points", "2_points_at_95")] == [36, 9, 15]
        and all(0.93 <= measured[name] <= 0.97 for name in measured if name.startswith("coverage"))
        and measured["type_I"] <= 0.065
    )
    return Outcome(measured, holds)
