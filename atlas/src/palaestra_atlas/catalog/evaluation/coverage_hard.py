"""Studies of coverage where intervals have it hard: families of tasks, few tasks, long tails, rare success."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import polars as pl

import palaestra.evaluation as ev
from palaestra_atlas.catalog.evaluation.coverage import Rng, fresh, holds, study, table
from palaestra_atlas.catalog.evaluation.coverage_trials import speaks

_draws = np.random.default_rng(0)
SUCCESS_OF_FAMILIES = float(
    np.clip(_draws.beta(2, 1, 400_000) + 0.05 * _draws.standard_normal(400_000), 0, 1).mean()
)  # 2/3 less what the ends cut off
LARGE = np.repeat(np.arange(12), [46] + [5] * 10 + [4])
"""Repository of each of 100 tasks: one of twelve holds 46 of them."""


@study
def families(rng: Rng) -> dict[str, Any]:
    """60 tasks of 12 families x 2 trials: success rates and gains are those of the family, and a little of the task's.

    The cluster key is the family; `blind_…` is what the same data give without it, and is only reported.
    """
    family = np.repeat(np.arange(12), 5)[:, None]
    p = np.clip(rng.beta(2, 1, (12, 1))[family[:, 0]] + 0.05 * rng.standard_normal((60, 1)), 0, 1)
    gain = rng.normal(0, 1, (12, 1))[family[:, 0]] + 0.3 * rng.standard_normal((60, 1))
    noise = 0.3 * rng.standard_normal((2, 60, 2))
    one = table("a", success=rng.random((60, 2)) < p, score=noise[0])
    two = table("b", success=rng.random((60, 2)) < p, score=gain + noise[1])
    keyed = pl.concat([one, two]).with_columns(cluster=pl.col("task") // 5)
    first = keyed.filter(pl.col("system") == "a")
    differ = partial(ev.paired_difference, a="b", b="a", value="score", resamples=300, seed=fresh(rng))
    known, blind = differ(keyed), differ(keyed.drop("cluster"))
    return {
        "coverage_success_families": holds(ev.success_interval(first), SUCCESS_OF_FAMILIES),
        "coverage_difference_families": holds(known, 0),
        "type1_difference_families": speaks(known),
        "blind_success_families": holds(ev.success_interval(first.drop("cluster")), SUCCESS_OF_FAMILIES),
        "blind_type1_families": speaks(blind),
    }


@study
def skewed(rng: Rng) -> dict[str, Any]:
    """30 tasks x 4 trials: scores whose task part is exponential, or lognormal with sd 1 in the log; 10 tasks too."""
    noise = 0.5 * rng.standard_normal((3, 30, 4))
    bent, long = rng.exponential(1, (30, 1)) + noise[0], rng.lognormal(0, 1, (30, 1)) + noise[1]
    few = rng.exponential(1, (10, 1)) + noise[2, :10]
    means = [ev.mean_interval(table("a", score=x), resamples=600, seed=fresh(rng)) for x in (bent, long, few)]
    return {
        "coverage_mean_exponential": holds(means[0], 1),
        "heavy_mean_lognormal_1_30": holds(means[1], math.exp(0.5)),
        "coverage_mean_exponential_10_tasks": holds(means[2], 1),
    }


@study
def heavy(rng: Rng) -> dict[str, Any]:
    """Tails that 30 and 100 tasks cannot show: lognormal with sd 1.5 in the log, Pareto 2.5; against a light system."""
    found: dict[str, Any] = {}
    for tasks in (30, 100):
        log, power = rng.lognormal(0, 1.5, (tasks, 1)), rng.pareto(2.5, (tasks, 1))
        for name, x, truth in (("lognormal_1_5", log, math.exp(1.125)), ("pareto", power, 1 / 1.5)):
            estimate = ev.mean_interval(table("a", score=x), resamples=600, seed=fresh(rng))
            found[f"heavy_mean_{name}_{tasks}"] = holds(estimate, truth)
            found[f"cautioned_{name}_{tasks}"] = bool(estimate.caution)
    light = rng.normal(math.exp(0.5), 1, (30, 1))
    pair = pl.concat([table("a", score=light), table("b", score=rng.lognormal(0, 1, (30, 1)))])
    both = ev.paired_difference(pair, "b", "a", value="score", resamples=600, seed=fresh(rng))
    calm = ev.mean_interval(table("a", score=rng.standard_normal((30, 1))), resamples=600, seed=fresh(rng))
    return found | {
        "heavy_difference": holds(both, 0),
        "heavy_type1_difference": speaks(both),
        "cautioned_normal": bool(calm.caution),
    }


@study
def lopsided(rng: Rng) -> dict[str, Any]:
    """100 tasks of 12 repositories, 46 of them in one: success rates are Beta(2, 1) per repository and system.

    `blind_…` is what the same data give without the cluster key, and is only reported.
    """
    a, b = (rng.random((100, 1)) < rng.beta(2, 1, 12)[LARGE][:, None] for _ in "ab")
    both = pl.concat([table("a", success=a), table("b", success=b)]).with_columns(cluster=pl.Series(np.tile(LARGE, 2)))
    first, blind = both.filter(pl.col("system") == "a"), both.drop("cluster")
    known = ev.paired_difference(both, "b", "a")
    return {
        "coverage_success_lopsided": holds(ev.success_interval(first), 2 / 3),
        "coverage_difference_lopsided": holds(known, 0),
        "type1_difference_lopsided": speaks(known),
        "cautioned_lopsided": bool(known.caution),
        "blind_success_lopsided": holds(ev.success_interval(first.drop("cluster")), 2 / 3),
        "blind_difference_lopsided": holds(ev.paired_difference(blind, "b", "a"), 0),
    }


@study
def rare(rng: Rng) -> dict[str, Any]:
    """100 tasks x 1 trial of which 2 % succeed, against the same and against 5 %; 100 x 4 of which few tasks can."""
    a, b, c = (rng.random((100, 1)) < rate for rate in (0.02, 0.02, 0.05))
    some = rng.beta(0.2, 1.8, (100, 1))
    d, e = rng.random((100, 4)) < some, rng.random((100, 4)) < 0.5 * some
    one = table("a", success=a)
    null = ev.paired_difference(pl.concat([one, table("b", success=b)]), "b", "a")
    gain = ev.paired_difference(pl.concat([one, table("b", success=c)]), "b", "a")
    half = ev.paired_difference(pl.concat([table("a", success=d), table("b", success=e)]), "b", "a")
    return {
        "coverage_success_rare": holds(ev.success_interval(one), 0.02),
        "coverage_difference_rare": holds(null, 0),
        "coverage_difference_rare_gain": holds(gain, 0.03),
        "coverage_success_few_solvable": holds(ev.success_interval(table("a", success=d)), 0.1),
        "coverage_difference_few_solvable": holds(half, -0.05),
        "type1_difference_rare": speaks(null),
    }


@study
def difficulty(rng: Rng) -> dict[str, Any]:
    """100 tasks x 4 trials, difficulty from Beta(.5, .5), most tasks being easy or hopeless; a loss of a tenth."""
    p = rng.beta(0.5, 0.5, (100, 1))
    a, b = rng.random((100, 4)) < p, rng.random((100, 4)) < 0.9 * p
    one = table("a", success=a)
    return {
        "coverage_success_difficulty": holds(ev.success_interval(one), 0.5),
        "coverage_difference_difficulty": holds(
            ev.paired_difference(pl.concat([one, table("b", success=b)]), "b", "a"), -0.05
        ),
    }
