"""[132] On Randomness in Agentic Evals (arXiv 2602.07150): one run of a benchmark says little; how many say enough.

Tasks have success rates from a beta distribution, runs are simulated. A run's score moves by what the task rates
predict, identical systems differ by points in single runs, and 9 runs each with the paper's formula keep that in check.
Every interval and test that the project reports is checked on the way (`coverage`). Left out: SWE-bench.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.evaluation import pass_at_k, pass_hat_k, run_spread, runs_needed
from palaestra_atlas.catalog.evaluation import coverage
from palaestra_atlas.reproductions import Outcome, reproduction

TASKS, RUNS, DRAWS = 500, 10, 2000
SHAPE = (0.5, 0.5)


@reproduction(
    132,
    claim="A single run of a benchmark moves by points, as its tasks' success rates predict; intervals over tasks and "
    "the formula for runs needed make comparisons mean something.",
    baseline="Two identical systems compared by one run each.",
    criterion="The spread of run scores is within 15 % of the prediction and above 1.2 points, the range over 10 runs "
    "above 3; identical systems differ by 2 points in over 25 % of single-run comparisons and in under 2 % with 9; "
    "runs needed are 36, 9 and 15; all intervals cover 93-97 % (those that are conservative at least 93 %), the type I "
    "error of all tests is at most 6.5 %, and their power at an alternative above one half.",
    seeds=(0,),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Runs of a simulated benchmark, then 2000 data sets for each interval and test."""
    rng = np.random.default_rng(seeds[0])
    p = rng.beta(*SHAPE, TASKS)
    predicted = 100 * float(np.sqrt((p * (1 - p)).sum())) / TASKS
    scores = 100 * (rng.random((DRAWS, 2, 9, TASKS), dtype=np.float32) < p).mean(-1)
    one = np.abs(scores[:, 0, 0] - scores[:, 1, 0])
    nine = np.abs(scores[:, 0].mean(1) - scores[:, 1].mean(1))
    spread = run_spread(coverage.table("a", success=rng.random((TASKS, RUNS)) < p[:, None]))
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
    }
    checked = coverage.simulate(DRAWS, seeds[0])
    close = [abs(measured[name] / predicted - 1) < 0.15 for name in ("sd_of_run_scores", "predicted_from_ten_runs")]
    holds = (
        all(close)
        and measured["sd_of_run_scores"] > 1.2
        and measured["range_over_ten_runs"] > 3
        and measured["identical_differ_by_2_single_run"] > 0.25
        and measured["identical_differ_by_2_nine_runs"] < 0.02
        and measured["largest_error_of_reducers"] < 5e-5
        and [measured[f"runs_for_{what}"] for what in ("1_point", "2_points", "2_points_at_95")] == [36, 9, 15]
        and not coverage.misses(checked)
    )
    return Outcome(measured | checked, holds)
