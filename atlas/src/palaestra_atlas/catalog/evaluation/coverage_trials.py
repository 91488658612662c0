"""Studies of coverage: what is said of trials of tasks, of one system and of two, with one run and with several."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import polars as pl

import palaestra.evaluation as ev
from palaestra.evaluation.intervals import share_of_cells
from palaestra_atlas.catalog.evaluation.coverage import Rng, fresh, held, holds, study, table

TASKS, TRIALS, NOISE = 40, 4, 0.3


def speaks(difference: ev.Difference) -> bool:
    """Better or worse: the interval is clear of 0 and p <= 5 %, as the verdict wants it."""
    return difference.p <= 0.05 and not difference.low <= 0 <= difference.high


@study
def tasks_and_trials(rng: Rng) -> dict[str, Any]:
    """One run; success rates of tasks are Beta(2, 1), so E p = 2/3, E p³ = 2/5, E (1-p)³ = 1/10, Var p = 1/18.

    pass@k and its like are of 100 tasks (see `k_estimate` for fewer), the rest of 40.
    """
    size = (TASKS, TRIALS)
    p = rng.beta(2, 1, (TASKS, 1))
    many = rng.random((100, TRIALS)) < rng.beta(2, 1, (100, 1))
    success, cost = rng.random(size) < p, (2 - p) * rng.lognormal(0, 0.5, size)
    score, other = (q + NOISE * rng.standard_normal(size) for q in (p, 0.8 * p))
    one = table("a", success=success, score=score, cost=cost)
    worse = table("b", success=rng.random(size) < 0.8 * p, score=other)
    same = table("b", success=rng.random(size) < p)
    both, equal = (pl.concat([one.select(x.columns), x]) for x in (worse, same))
    left = ev.robustness(both, "b", "a")
    price = ev.cost_per_success(one)
    spread = ev.variance_components(one, value="score")
    task_share = (1 / 18) / (1 / 18 + NOISE**2)
    null = ev.paired_difference(equal, "a", "b", resamples=300, seed=fresh(rng))
    return {
        "coverage_success": holds(ev.success_interval(one), 2 / 3),
        "coverage_mean": holds(ev.mean_interval(one), 2 / 3),
        **{f"coverage_{name}": holds(found, TRUTH_OF_THREE[name]) for name, found in of_three(many).items()},
        "coverage_best_of_3": holds(ev.k_estimate(one, "best_of", 3), 2 / 3 + NOISE * 1.5 / math.sqrt(math.pi)),
        "coverage_cost_per_success": held(price["low"][0], price["high"][0], 2 * math.exp(0.125)),
        "coverage_difference": holds(left.drop, -2 / 15),
        "coverage_score_difference": holds(
            ev.paired_difference(both, "a", "b", value="score", resamples=300, seed=fresh(rng)), 2 / 15
        ),
        "coverage_robustness_ratio": holds(left.ratio, 0.8),
        "coverage_variance_task": held(spread["low"][0], spread["high"][0], task_share),
        "coverage_variance_trial": held(spread["low"][3], spread["high"][3], 1 - task_share),
        "type1_difference": speaks(null),
        "power_difference": speaks(left.drop),
    }


TRUTH_OF_THREE = {"pass_at_3": 0.9, "pass_hat_3": 0.4, "all_3": 0.4}


def of_three(success: np.ndarray) -> dict[str, ev.Estimate]:
    """What `k_estimate` gives for bool[tasks, trials], without a table."""
    n, c = success.shape[1], success.sum(1)
    cells = {
        "pass_at_3": ev.pass_at_k(n, c, 3),
        "pass_hat_3": ev.pass_hat_k(n, c, 3),
        "all_3": success[:, :3].all(1).astype(float),
    }
    return {name: share_of_cells(cell[None], n=success.size) for name, cell in cells.items()}


@study
def one_trial_each(rng: Rng) -> dict[str, Any]:
    """One trial per task: Wilson's interval, McNemar's test; and the whole run's spread over 8 of them."""
    p = rng.beta(2, 1, (50, 1))
    success = rng.random((50, 8)) < p
    one = table("a", success=success[:, :1])
    clean = ev.safety_score(pl.DataFrame({"episode": np.flatnonzero(~success[:, 0]), "severity": "high"}), 50)
    change = np.array([-1.0, 0.0, 1.0])
    null, better = (rng.choice(change, 60, p=[q, 1 - q - r, r]) for q, r in ((0.2, 0.2), (0.1, 0.3)))
    keyed = table("a", success=success[:, :2]).with_columns(domain=pl.col("task") % 2, level=pl.lit("L1"))
    grid = ev.matrix_table(keyed, rows="domain", columns="level")
    inside = held(grid["low"], grid["high"], 2 / 3)
    return {
        "coverage_success_one_trial": holds(ev.success_interval(one), 2 / 3),
        "coverage_matrix_cell": inside[0],
        "coverage_matrix_margin": inside[-1],
        "coverage_compliance": held(clean["low"], clean["high"], 2 / 3),
        "coverage_run_sd": holds(ev.run_spread(table("a", success=success)), math.sqrt((p * (1 - p)).sum()) / 50),
        "type1_mcnemar": ev.sign_flip_pvalue(null) <= 0.05,
        "power_mcnemar": ev.sign_flip_pvalue(better) <= 0.05,
    }


@study
def permutation(rng: Rng) -> dict[str, Any]:
    """Differences that are no multiples of anything, so that sign patterns are drawn; shifted by half an sd."""
    x = rng.laplace(0, 1 / math.sqrt(2), 30)
    return {
        "type1_permutation": ev.sign_flip_pvalue(x, resamples=400, rng=rng) <= 0.05,
        "power_permutation": ev.sign_flip_pvalue(x + 0.5, resamples=400, rng=rng) <= 0.05,
    }


@study
def several_runs(rng: Rng) -> dict[str, Any]:
    """6 runs x 30 tasks x 2 trials, crossed; variances task 1, run .3, both .5, trial 1."""
    runs, tasks, trials = 6, 30, 2

    def scores(task: np.ndarray) -> np.ndarray:
        run, cell = rng.normal(0, 0.3**0.5, (runs, 1, 1)), rng.normal(0, 0.5**0.5, (runs, tasks, 1))
        return np.asarray(task + run + cell + rng.standard_normal((runs, tasks, trials)))

    task = rng.standard_normal((tasks, 1))
    a, b, c = (scores(task + shift) for shift in (0, 0, 1.2))
    rate = rng.beta(2, 1, (tasks, 1)) * rng.uniform(0.7, 1, (runs, 1, 1))
    one = table("a", score=a, success=rng.random(a.shape) < rate)
    differ = partial(ev.paired_difference, a="b", b="a", value="score", resamples=300, seed=fresh(rng))
    null, better = (differ(pl.concat([one.select("system", "run", "task", "trial", "score"), table("b", score=x)]))
                    for x in (b, c))  # fmt: skip
    spread = ev.variance_components(one, value="score")
    truth = np.array([1, 0.5, 1]) / 2.8
    kept = spread.filter(pl.col("source") != "run")
    return {
        "coverage_mean_6_runs": holds(ev.mean_interval(one), 0),
        "coverage_success_6_runs": holds(ev.success_interval(one), 2 / 3 * 0.85),
        "coverage_difference_6_runs": holds(better, 1.2),
        "coverage_variance_6_runs": held(kept["low"], kept["high"], truth),
        "type1_difference_6_runs": null.p <= 0.05,
        "power_difference_6_runs": better.p <= 0.05,
    }


@study
def holm(rng: Rng) -> dict[str, Any]:
    """Three systems that equal the baseline on 40 tasks: is any of them said to differ? Another gains 15 points."""
    p = rng.beta(2, 2, TASKS)
    baseline = rng.binomial(TRIALS, p) / TRIALS
    rates = (p, p, p, np.minimum(p + 0.15, 1))
    found = [ev.sign_flip_pvalue(rng.binomial(TRIALS, q) / TRIALS - baseline) for q in rates]
    return {"type1_holm_family": min(ev.holm(found[:3])) <= 0.05, "power_holm": ev.holm(found)[-1] <= 0.05}


@study
def proof(rng: Rng) -> dict[str, Any]:
    """Five looks at 40 tasks x 4 trials: a team that never gets better, and one that gains 4 points per look."""
    p, tasks = rng.beta(2, 2, (TASKS, 1)), (TASKS, TRIALS)
    start = (rng.random(tasks) < p).mean(1)

    def looks(gain: float) -> list[tuple[float, np.ndarray]]:
        return [(i, (rng.random(tasks) < p + gain * i).mean(1) - start) for i in range(1, 6)]

    return {
        "type1_first_proof": ev.first_significant(looks(0.0)) is not None,
        "power_first_proof": ev.first_significant(looks(0.04)) is not None,
    }
