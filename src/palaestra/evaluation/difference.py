"""Is one system better than another on the same tasks? Paired, clustered by task and run, with what could be detected.

Left out: unpaired comparisons (give both systems the same tasks), equivalence tests, rankings of many systems.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl
import scipy

from palaestra.errors import InputError, nearest
from palaestra.evaluation.intervals import (
    RESAMPLES,
    Estimate,
    Scale,
    binary,
    caution,
    cells,
    clustered_variance,
    cut_off,
    effective_number,
    families,
    gather,
    matrix,
    settle,
    studentised,
    units,
    wilson,
)
from palaestra.evaluation.power import detectable_difference, more_units

_BLOCK = 1 << 22  # random signs held in memory at once
_MOST_STEPS = 10**7  # null distribution times convolutions that an exact p may cost; about a second


NO_TASKS, OTHER_RUNS = "no tasks in common", "no runs in common"
"""Methods of a `Difference` without a value: why there is none."""


@dataclass(frozen=True)
class Difference(Estimate):
    """Result of `paired_difference`: an `Estimate` of system minus baseline over cells (run, task), with p and power.

    p: two-sided, see `paired_difference`. dropped: cells that only one of the two systems has a value for.
    comparisons: how many differences share the level; their intervals hold all together, not one by one.
    detectable: the true difference that this design finds with 80 % power, as one of `comparisons`; NaN: unknown.
    possible: the largest difference that the scale of the values allows, 1 for success; infinite: no known scale.
    sd: of one cell's difference.
    tasks: in common. more_tasks, more_runs: how many more of either would find a difference of this size with that
    power; -1: no number. Where tasks come in families, more_tasks counts families, as `clusters` does.
    """

    p: float
    dropped: int
    detectable: float
    sd: float
    tasks: int
    more_tasks: int = -1
    more_runs: int = -1
    possible: float = math.inf
    comparisons: int = 1


def paired_difference(
    trials: pl.DataFrame,
    a: str,
    b: str,
    *,
    value: str = "success",
    scale: Scale | None = None,
    level: float = 0.95,
    comparisons: int = 1,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Difference:
    """`Difference`: mean of system `a` minus `b` in a trials frame over cells (run, task) of both, clustered interval.

    Student's t with the clustered variance. Success (and any value that is 0 or 1): that variance is the one after each
    system has won a trial more, V + 2/n², because a few successes show too little of it (in the spirit of Bonett &
    Price 2012). Simulated with 10 to 100 tasks x 1 to 8 trials over 16 populations of tasks, 1500 data sets each: it
    covers 95-97 %, and 97-99 % where 2 % succeed once or less; the bootstrap's shape covered 92 % there.
    Scores of one run: the wider of t and the studentised bootstrap at either end (`mean_of_cells`), because scores may
    be skewed.

    If all differences are equal there is nothing to resample: the margin then is Wilson's upper limit for 0 of that
    many tasks, times the range of the values seen; without any range there is no interval.

    p: one run: sign-flip permutation test over tasks (`sign_flip_pvalue`; with one trial per task McNemar's exact
    test), for scores at least the p of the studentised bootstrap, since sign flips take the null to be symmetric.
    Several runs: t test with the clustered variance, so that runs count as units too.

    Where trials have a column `cluster`, whole clusters of tasks are resampled and flipped.

    scale: lowest and highest possible value, (0, 1) for success: no interval reaches beyond its width; None: not known.
    comparisons: how many differences are looked at. Each gets an interval of 1 - (1 - level) / comparisons, so that all
    hold together with `level` (Bonferroni). `detectable` and what more would do are at the same error rate.

    Raises:
        InputError: `a` or `b` is not a system of `trials`.
    """
    for name in (a, b):
        _check_system(trials, name)
    alpha = (1 - level) / comparisons
    level = 1 - alpha
    pair = units(trials.filter(pl.col("system").is_in([a, b])))
    left, right = (cells(pair.filter(pl.col("system") == name), value) for name in (a, b))
    both = left.join(right, on=["run", "task"], how="full", coalesce=True)
    paired = both.drop_nulls(["mean", "mean_right"])
    paired = paired.with_columns(difference=pl.col("mean") - pl.col("mean_right")).sort("run", "task")
    dropped, n = len(both) - len(paired), int(paired["n"].sum())
    if paired.is_empty():
        nan = math.nan
        apart = left.join(right, on="task", how="semi").is_empty()
        why = NO_TASKS if apart else OTHER_RUNS
        return Difference(
            nan, nan, nan, 0, 0, 0, why, p=nan, dropped=dropped, detectable=nan, sd=nan, tasks=0,
            comparisons=comparisons,
        )  # fmt: skip

    values, groups = matrix(paired, "difference"), families(paired)
    runs, tasks = values.shape
    sums, counts = gather(values, groups)
    clusters = sums.shape[1]
    flat = paired["difference"].to_numpy()
    seen = paired.select("mean", "mean_right").to_numpy()
    rng = np.random.default_rng(seed)
    mean, sd = settle(float(flat.mean()), seen), float(flat.std(ddof=1)) if len(flat) > 1 else math.nan
    variance, freedom = clustered_variance(values, groups)
    error = math.sqrt(variance)
    quantile = float(scipy.special.stdtrit(freedom, (1 + level) / 2)) if freedom >= 1 else math.nan
    margin = quantile * error
    low, high = mean - margin, mean + margin
    share, draws = binary(pair[value]), np.empty(0)
    varies = settle(margin, seen) > 0
    if not varies and math.isfinite(margin):
        spread = float(seen.max() - seen.min()) if not share else 1.0
        margin = spread * float(wilson(0, effective_number(counts.sum(0)), level=level)[1])
        low, high = (mean - margin, mean + margin) if settle(spread, seen) > 0 else (math.nan, math.nan)
    elif varies and not share and runs == 1:
        draws = studentised(values, groups, resamples=resamples, seed=seed)
        if len(draws):
            below, above = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
            low, high = min(low, mean - above * error), max(high, mean - below * error)
    elif varies and share:
        wide = quantile * math.sqrt(variance + 2 / n**2)
        low, high = mean - wide, mean + wide
    ends = (0.0, 1.0) if share else scale
    width = math.inf if ends is None else ends[1] - ends[0]
    low, high, cut = cut_off(settle(low, seen), settle(high, seen), (-width, width))

    if runs == 1 or not varies:  # without variance there is no t; margin may be Wilson's by now
        flips = gather(np.where(np.isfinite(values).any(0), np.nanmean(values, axis=0), np.nan)[None], groups)[0][0]
        p = sign_flip_pvalue(flips, resamples=resamples, rng=rng)
        if len(draws):
            p = max(p, _studentised_pvalue(mean / error, draws))
    else:
        p = float(2 * scipy.special.stdtr(freedom, -abs(mean) / error))
    method = "t, clustered by " + ("task" if groups is None else "cluster") + (" and run" if runs > 1 else "")
    known = margin > 0 and math.isfinite(margin)
    detectable = detectable_difference(margin / quantile, alpha=alpha, freedom=freedom) if known else math.nan
    more = more_units(sums / np.where(counts > 0, counts, np.nan), mean, alpha=alpha) if mean else (-1, -1)
    said = caution(values, groups, share=share)
    return Difference(
        mean, low, high, n, clusters, runs, method + cut,
        p, dropped, detectable, sd, tasks, *more, width, comparisons, caution=said,
    )  # fmt: skip


def _studentised_pvalue(t: float, draws: np.ndarray) -> float:
    """Two-sided p of a mean t standard errors from 0: twice the smaller tail of the sorted draws, at least 2 draws.

    Draws within 1e-9 of t count in both tails: scores in steps give ties, which rounding would break either way.
    """
    beyond = min(np.searchsorted(draws, t + 1e-9), len(draws) - np.searchsorted(draws, t - 1e-9))
    return float(min(1.0, 2 * (beyond + 1) / (len(draws) + 1)))


def sign_flip_pvalue(
    differences: np.ndarray, *, resamples: int = RESAMPLES, rng: np.random.Generator | None = None
) -> float:
    """Two-sided p-value of the sign-flip permutation test that an array of paired differences has mean 0.

    Exact when the differences are multiples of some 1/m, m <= 64 (success rates with equal trials: the null
    distribution is a convolution of binomials; with one trial per task this is McNemar's exact test), unless they are
    so large that this takes long, and when at most 12 are not 0 (all 2^n sign patterns). Otherwise
    `resamples` random patterns, (hits + 1) / (resamples + 1).

    >>> sign_flip_pvalue(np.repeat([1.0, -1.0, 0.0], [34, 19, 147])).__round__(4)
    0.0534
    """
    differences = differences[np.isfinite(differences) & (differences != 0)]
    if not len(differences):
        return 1.0
    observed = abs(differences.sum()) - 1e-12 * np.abs(differences).sum()  # equal sums may round apart
    for scale in range(1, 65):
        steps = np.rint(differences * scale)
        if (steps != 0).all() and np.abs(differences * scale - steps).max() <= 1e-6:
            if np.abs(steps).sum() * len(np.unique(np.abs(steps))) > _MOST_STEPS:
                break
            return _lattice_pvalue(steps.astype(np.int64))
    if len(differences) <= 12:
        signs = (np.arange(2 ** len(differences))[:, None] >> np.arange(len(differences)) & 1) * 2.0 - 1.0
        return float((np.abs(signs @ differences) >= observed).mean())
    rng = np.random.default_rng(0) if rng is None else rng
    hits = 0
    step = max(1, _BLOCK // len(differences))
    for start in range(0, resamples, step):
        flips = rng.integers(0, 2, (min(step, resamples - start), len(differences)), dtype=np.int8)
        hits += int((np.abs((flips * 2.0) @ differences - differences.sum()) >= observed).sum())
    return (hits + 1) / (resamples + 1)


def _lattice_pvalue(steps: np.ndarray) -> float:
    """P(|Σ ±step| >= |Σ step|): the m steps of one size s add s·(2·Binomial(m, 1/2) - m)."""
    null = np.ones(1)
    for size, count in zip(*np.unique(np.abs(steps), return_counts=True), strict=True):
        sums = np.zeros(2 * size * count + 1)
        sums[:: 2 * size] = _halves(count)
        null = sums if len(null) == 1 else scipy.signal.convolve(null, sums)
    reach = np.abs(steps).sum()
    return float(np.clip(null[np.abs(np.arange(-reach, reach + 1)) >= abs(steps.sum())].sum(), 0.0, 1.0))


def _halves(count: int) -> np.ndarray:
    """P(k heads of `count` fair coins), float64[count + 1]; of scipy.stats that would take a second to load."""
    heads, log = np.arange(count + 1), scipy.special.gammaln
    return np.asarray(np.exp(log(count + 1) - log(heads + 1) - log(count - heads + 1) - count * math.log(2)))


def _check_system(trials: pl.DataFrame, system: str) -> None:
    systems = trials["system"].unique().to_list()
    if system not in systems:
        raise InputError(f"no system {system!r} in the trials{nearest(system, systems)}")
