"""[132] On Randomness in Agentic Evals (arXiv 2602.07150): one run of a benchmark says little; how many say enough.

Tasks have success rates from a beta distribution, runs are simulated. A run's score moves by what the task rates
predict, identical systems differ by points in single runs, and 9 runs each with the paper's formula keep that in check.
Every interval and test that the project reports is checked on the way (`coverage`). Left out: SWE-bench.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from palaestra.evaluation import first_divergence, k_estimate, pass_at_k, pass_hat_k, per_task, run_spread, runs_needed
from palaestra_atlas.catalog.evaluation import coverage
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

TASKS, RUNS, DRAWS = 500, 10, 2000
SHAPE = (0.5, 0.5)


def table_of(successes: np.ndarray) -> pl.DataFrame:
    """Trials of one system, bool[tasks, trials]."""
    return coverage.table("a", success=successes)


@exact
def unbiased_reducers() -> None:
    """Seven successes in ten trials: pass@k and pass^k without bias, by table and by formula."""
    trials = table_of(np.arange(10)[None] < 7)
    for k, optimistic in ((1, 0.7), (2, 0.9333), (3, 0.9917), (5, 1.0)):
        assert abs(per_task(trials, "pass_at_k", k)["value"].item() - optimistic) < 5e-5, k
    for k, pessimistic in ((2, 0.4667), (3, 0.2917), (5, 0.0833)):
        assert abs(per_task(trials, "pass_hat_k", k)["value"].item() - pessimistic) < 5e-5, k
    assert per_task(trials, "pass_hat_k", 11)["value"].item() is None
    assert abs(k_estimate(trials, "pass_hat_k", 2).mean - 0.4667) < 5e-5


@exact
def runs_for_a_difference() -> None:
    """Runs for 1, 2 and 3 points at a sigma of 1.5, and for 2 points with a power of .95."""
    assert [runs_needed(1.5, delta) for delta in (1, 2, 3)] == [36, 9, 4]
    assert runs_needed(1.5, 2, power=0.95) == 15


@exact
def spread_of_runs() -> None:
    """Ten runs have a standard deviation and a range, as the success rates of tasks of mixed difficulty predict."""
    rng = np.random.default_rng(0)
    p = rng.beta(*SHAPE, 400)
    found = run_spread(table_of(rng.random((400, 10)) < p[:, None]))
    assert found.runs == 10
    assert found.sd > 0
    true = float(np.sqrt((p * (1 - p)).sum())) / 400
    assert abs(found.predicted / true - 1) < 0.1, (found.predicted, true)


@exact
def parting_of_runs() -> None:
    """Runs of 30 and 60 tokens that part after three have a divergence of a tenth."""
    same = [1, 2, 3]
    assert first_divergence([*same, *[4] * 27], [*same, *[5] * 57]) == 0.1


def made(seed: int, folder: Path) -> None:
    """Eleven identical systems on 200 tasks: nine runs of each in `nine.csv`, one in `one.csv`."""
    rng = np.random.default_rng(seed)
    p = rng.beta(*SHAPE, 200)
    for name, runs in (("nine", 9), ("one", 1)):
        rows = [
            pl.DataFrame({"system": f"s{n:02}", "task": np.repeat(np.arange(200), runs),
                          "success": (rng.random((200, runs)) < p[:, None]).ravel().astype(int)})
            for n in range(11)
        ]  # fmt: skip
        pl.concat(rows).write_csv(folder / f"{name}.csv")


def declared_different() -> Measure:
    """Share of systems said to differ from the first: by the verdict, or of single runs by two points or more."""

    def measured(left: Left) -> list[float]:
        rows = [row for row in json.loads(left.stdout) if row["difference"] is not None]
        said = [
            abs(row["difference"]["mean"]) >= 0.02 if row["trials"] == 1 else not row["verdict"].startswith("cannot")
            for row in rows
        ]
        return [float(np.mean(said))]

    return measured


@reproduction(
    132,
    claim="A single run of a benchmark moves by points, as its tasks' success rates predict; intervals over tasks and "
    "the formula for runs needed make comparisons mean something.",
    baseline="Two identical systems compared by one run each.",
    criterion="The spread of run scores is within 15 % of the prediction and above 1.2 points, the range over 10 runs "
    "above 3; identical systems differ by 2 points in over 25 % of single-run comparisons and in under 2 % with 9; "
    "runs needed are 36, 9 and 15; all intervals cover 93-97 % (those that are conservative at least 93 %), the type I "
    "error of all tests is at most 6.5 %, and their power at an alternative above one half; a study that "
    "misses a bound is drawn four times as long, which decides.",
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
    checked = coverage.simulate(DRAWS, seeds[0], redrawn=4)
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
