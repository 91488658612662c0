"""Power of a design: the detectable difference, and how many more units would find a given one.

Left out: power of rank tests and of sequential designs.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import scipy

from palaestra.errors import InputError


def detectable_difference(
    standard_error: float, *, power: float = 0.8, alpha: float = 0.05, freedom: float = math.inf
) -> float:
    """Smallest true difference that a two-sided test finds with `power`, given `standard_error`.

    For n tasks whose paired differences have standard deviation sd: sd/√n; for two independent samples of n trials
    with success rate p: √(2p(1-p)/n). freedom: of the standard error; infinite gives normal quantiles.
    """
    quantiles = scipy.special.stdtrit(freedom, [1 - alpha / 2, power])
    return float(quantiles.sum()) * standard_error


def runs_needed(
    sigma: float,
    delta: float,
    *,
    power: float = 0.8,
    alpha: float = 0.05,
    paired: bool = False,
    test: Literal["z", "t"] = "z",
) -> int:
    """Runs of each system (`paired`: tasks) of sd `sigma` needed to show a difference `delta` with `power` (z or t).

    ⌈c (z_{1-alpha/2} + z_power)² sigma² / delta²⌉ with c = 2, or 1 if paired.

    Unpaired (c = 2, arXiv 2602.07150): runs of *each* system, sigma = standard deviation of a run's score. Paired
    (c = 1): tasks, sigma = standard deviation of a task's difference. test="t": the smallest number with which the
    exact t test has that power (what statsmodels solves for), one or two more.

    >>> runs_needed(1.5, 1), runs_needed(1.5, 2), runs_needed(1.5, 2, power=0.95)
    (36, 9, 15)
    >>> runs_needed(1.5, 1, test="t"), runs_needed(1.5, 2, test="t"), runs_needed(1.5, 2, power=0.95, test="t")
    (37, 10, 16)
    """
    if not (sigma >= 0 and delta != 0 and 0 < power < 1 and 0 < alpha < 1):
        raise InputError(
            f"runs_needed: sigma={sigma}, delta={delta}, power={power}, alpha={alpha}: sigma must not be negative, "
            "delta not 0, power and alpha between 0 and 1"
        )
    needed = (1 if paired else 2) * (detectable_difference(sigma, power=power, alpha=alpha) / delta) ** 2
    least = max(1, math.ceil(needed - 1e-9))
    if test == "z" or sigma == 0:
        return least
    least = max(2, least)
    while t_power(sigma, delta, least, alpha=alpha, paired=paired) < power:
        least += 1
    return least


def t_power(sigma: float, delta: float, n: float, *, alpha: float = 0.05, paired: bool = False) -> float:
    """Power of a two-sided t test of `delta` with n units of sd `sigma` (of each system, unless paired)."""
    freedom, scale = (n - 1, n) if paired else (2 * (n - 1), n / 2)
    shift, critical = abs(delta) / sigma * math.sqrt(scale), scipy.stats.t.ppf(1 - alpha / 2, freedom)
    return float(scipy.stats.nct.sf(critical, freedom, shift) + scipy.stats.nct.cdf(-critical, freedom, shift))


def mcnemar_power(worse: float, better: float, n: int, *, alpha: float = 0.05) -> float:
    """Power of McNemar's exact test on n tasks, one trial each, if one is lost with chance `worse`, won with `better`.

    worse, better: chances that a task is lost and that it is won by the change. Exact: sums over the number of
    discordant tasks and over how they fall.

    >>> round(mcnemar_power(0.095, 0.17, 200), 3)
    0.495
    """
    discordant = worse + better
    m = np.arange(1, n + 1)
    # the most tasks that the lesser side may have: 2 P(X <= most) <= alpha
    most = scipy.stats.binom.ppf(alpha / 2, m, 0.5)
    most -= 2 * scipy.stats.binom.cdf(most, m, 0.5) > alpha
    finds = sum(scipy.stats.binom.cdf(most, m, share / discordant) for share in (worse, better))
    return float(scipy.stats.binom.pmf(m, n, discordant) @ np.minimum(finds, 1.0))


def mcnemar_tasks(worse: float, better: float, *, power: float = 0.8, alpha: float = 0.05, most: int = 100_000) -> int:
    """Number of tasks that gives McNemar's exact test this power if one is lost with chance `worse`, won with `better`.

    To within the test's discreteness.

    Raises:
        InputError: the two chances are equal, or `most` tasks are not enough.
    """
    enough = 8
    while worse == better or mcnemar_power(worse, better, enough, alpha=alpha) < power:
        if worse == better or enough >= most:
            raise InputError(f"mcnemar_tasks: {most} tasks do not show worse={worse} against better={better}")
        enough = min(2 * enough, most)
    short = 1
    while enough - short > 1:
        middle = (enough + short) // 2
        short, enough = (
            (short, middle) if mcnemar_power(worse, better, middle, alpha=alpha) >= power else (middle, enough)
        )
    return enough


def more_units(values: np.ndarray, effect: float, *, power: float = 0.8, alpha: float = 0.05) -> tuple[int, int]:
    """(tasks, runs): more tasks, or runs, for differences float64[runs, tasks] to show `effect` with `power`; -1: none.

    0: what there is suffices.

    values: float64[runs, tasks] of differences per cell. V(R, T) = a/R + b/T + c/(RT) with the components of variance
    of this table; one of R and T grows until (z_{1-alpha/2} + z_power)² V <= effect². 0: what there is suffices.

    Returns:
        (tasks, runs); -1 if no number would do, because what the other axis leaves is already too much.
    """
    runs, tasks = (int(np.isfinite(values).any(axis).sum()) for axis in (1, 0))
    goal = (effect / detectable_difference(1.0, power=power, alpha=alpha)) ** 2
    run, task, rest = two_way(values)
    if not goal > 0 or not math.isfinite(rest):
        return -1, -1

    def more(own: float, other: float, have: int, fixed: int) -> int:
        left = goal - other / fixed
        return max(0, math.ceil((own + rest / fixed) / left - 1e-9) - have) if left > 1e-300 else -1

    return more(task, run, tasks, runs), more(run, task, runs, tasks) if runs > 1 else -1


def two_way(values: np.ndarray) -> tuple[float, float, float]:
    """(run, task, rest) components of variance of float64[runs, tasks] without replicates; NaN: absent.

    Mean squares of the two-way layout (Searle, Casella & McCulloch 1992, 4.3), cut off at 0; with one run everything
    is rest, and with holes the counts are harmonic means.
    """
    seen = np.isfinite(values)
    values = values[np.ix_(seen.any(1), seen.any(0))]
    seen = np.isfinite(values)
    if seen.sum() < 2:
        return 0.0, 0.0, math.nan
    if min(values.shape) < 2:
        return 0.0, 0.0, float(values[seen].var(ddof=1))
    row, column, grand = np.nanmean(values, 1), np.nanmean(values, 0), values[seen].mean()
    residual = (values - row[:, None] - column + grand)[seen]
    freedom = seen.sum() - len(row) - len(column) + 1
    rest = float((residual**2).sum() / freedom) if freedom > 0 else 0.0
    per_row, per_column = (1 / np.mean(1 / seen.sum(axis)) for axis in (1, 0))
    run = max(0.0, float(row.var(ddof=1) - rest / per_row))
    task = max(0.0, float(column.var(ddof=1) - rest / per_column))
    return run, task, rest
