"""Estimates with intervals, clustered by task (and by run), and the unbiased k-trial reducers.

Trials of one task resemble each other, and so do trials of one training run. So values are first averaged inside each
cell (run, task); every estimate is the mean over cells ("macro over tasks"), and its variance counts tasks and runs as
the units, not trials. Left out: rank statistics, calibration, consistency.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from palaestra.errors import InputError, MissingColumnError, nearest


@dataclass(frozen=True)
class Estimate:
    """A mean with its interval. NaN = unknown (null in JSON).

    n: trials with a value. clusters: tasks (with a single task: its trials). runs: training runs. method: in words.
    """

    mean: float
    low: float
    high: float
    n: int
    clusters: int
    runs: int
    method: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: NaN and infinity become None."""
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(self).items()}


def units(trials: pl.DataFrame) -> pl.DataFrame:
    """The same trials; if all are of one task, each becomes a task of its own, and every claim is about that one."""
    if "task" not in trials.columns or trials["task"].n_unique() > 1:
        return trials
    return trials.with_columns(task=pl.format("{} #{}", "task", "trial"))


def cells(trials: pl.DataFrame, value: str) -> pl.DataFrame:
    """`run, task, mean, total, n` of the trials that have a value; null and NaN leave mean and count.

    Raises:
        MissingColumnError: `trials` lacks a column.
    """
    for name in ("run", "task", value):
        if name not in trials.columns:
            raise MissingColumnError(f"trials have no column {name!r}{nearest(name, trials.columns)}")
    scored = trials.select("run", "task", value=pl.col(value).cast(pl.Float64).fill_nan(None)).drop_nulls()
    column = pl.col("value")
    return (
        scored.group_by("run", "task")
        .agg(mean=column.mean(), total=column.sum(), n=column.len().cast(pl.Int64))
        .sort("run", "task")
    )


def matrix(frame: pl.DataFrame, column: str) -> np.ndarray:
    """A column of `cells` as float64[runs, tasks]; NaN where a run did not see a task."""
    runs, row = np.unique(frame["run"].to_numpy(), return_inverse=True)
    tasks, position = np.unique(frame["task"].to_numpy(), return_inverse=True)
    values = np.full((len(runs), len(tasks)), np.nan)
    values[row, position] = frame[column].to_numpy()
    return values


def clustered_variance(values: np.ndarray) -> tuple[float, float]:
    """Variance of the mean of float64[runs, tasks] and its degrees of freedom; NaN if there are fewer than two units.

    V(key) = G/(G-1) · Σ_g (Σ_{cells of g} deviation)² / N², over the G clusters of that key.
    One run: V(task), T-1. No task in two runs: V(run), R-1, because whole runs are what is independent.
    Otherwise both are crossed: V(run) + V(task) - V(cell) (Cameron, Gelbach & Miller 2011), at least V(run) and
    V(task), with Satterthwaite's degrees of freedom. Checked by simulation (1500 data sets each): the t interval covers
    93-98 % with 5 or more runs; 87-95 % with 2 or 3 runs that differ by much more than their noise.
    """
    seen = np.isfinite(values)
    count = int(seen.sum())
    deviation = np.where(seen, values - values[seen].mean() if count else 0.0, 0.0)

    def variance(sums: np.ndarray) -> float:
        return float(sums.size / (sums.size - 1) * (sums**2).sum() / count**2) if sums.size > 1 else math.nan

    runs, tasks = int(seen.any(1).sum()), int(seen.any(0).sum())
    by_run = variance(deviation.sum(1)[seen.any(1)])
    by_task = variance(deviation.sum(0)[seen.any(0)])
    if runs <= 1:
        return by_task, float(tasks - 1)
    if tasks <= 1 or count == tasks:
        return by_run, float(runs - 1)
    total = max(by_run + by_task - variance(deviation[seen]), by_run, by_task)
    noise = by_run**2 / (runs - 1) + by_task**2 / (tasks - 1)
    freedom = total**2 / noise if noise > 0 else 0.0
    return total, float(np.clip(freedom, min(runs, tasks) - 1, max(runs, tasks) - 1))


def mean_interval(trials: pl.DataFrame, *, value: str = "score", level: float = 0.95) -> Estimate:
    """Mean over cells with Student's t interval, clustered by task and run (see `clustered_variance`)."""
    table = cells(units(trials), value)
    return mean_of_cells(matrix(table, "mean"), n=int(table["n"].sum()), level=level)


def mean_of_cells(values: np.ndarray, *, n: int, level: float = 0.95) -> Estimate:
    """The same for float64[runs, tasks] of anything that is known per cell."""
    seen = np.isfinite(values)
    mean = float(values[seen].mean()) if seen.any() else math.nan
    variance, freedom = clustered_variance(values)
    margin = _t(level, freedom) * math.sqrt(variance)
    return Estimate(mean, mean - margin, mean + margin, n, *_units(seen), _clusters("t", seen))


def success_interval(trials: pl.DataFrame, *, value: str = "success", level: float = 0.95) -> Estimate:
    """Success rate over cells with Wilson's interval.

    With one run and one trial per task this is Wilson's interval (statsmodels). With more, n is the effective number
    of trials p(1-p) / V, where V is the clustered variance after one imaginary task that always or never succeeds (it
    keeps V from being 0 by luck), at most n, and shrunk by (z/t)² because V is estimated (Korn & Graubard 1998). If
    nothing or everything succeeded, n is the number of tasks. Simulated at 30 and 100 tasks x 1, 4, 8 trials over six
    beta populations of tasks, 4000 draws each: covers 94-97 %, but 92 % where only 5 % of 30 tasks are solvable.
    """
    table = cells(units(trials), value)
    return share_of_cells(matrix(table, "mean"), n=int(table["n"].sum()), level=level)


def share_of_cells(values: np.ndarray, *, n: int, level: float = 0.95) -> Estimate:
    """The same for float64[runs, tasks] of anything in [0, 1] that is known per cell, e.g. pass^k from n trials."""
    seen = np.isfinite(values)
    clusters, runs = _units(seen)
    if not n:
        return Estimate(math.nan, math.nan, math.nan, 0, clusters, runs, "no trials")
    mean = float(np.clip(values[seen].mean(), 0.0, 1.0))
    effective = float(n)
    if n > clusters or runs > 1:
        variance, freedom = clustered_variance(values)
        spread = mean * (1 - mean)
        variance = (clusters * variance + spread / clusters) / (clusters + 1)
        effective = min(spread / variance, float(n)) if spread > 0 and math.isfinite(variance) else float(clusters)
        shrink = stats.norm.ppf((1 + level) / 2) / _t(level, freedom)
        effective *= shrink**2 if spread > 0 and math.isfinite(shrink) else 1.0
    low, high = proportion_confint(mean * effective, effective, alpha=1 - level, method="wilson")
    return Estimate(mean, max(float(low), 0.0), min(float(high), 1.0), n, clusters, runs, _clusters("Wilson", seen))


def pass_at_k(n: Any, c: Any, k: Any) -> np.ndarray:
    """Unbiased chance that at least one of k trials succeeds, from c successes in n: 1 - C(n-c, k) / C(n, k).

    Elementwise; NaN where n < k. Source: arXiv 2107.03374.

    >>> pass_at_k(10, 7, [1, 2, 5]).round(4).tolist()
    [0.7, 0.9333, 1.0]
    """
    n, c, k = _counts(n, c, k)
    return 1.0 - choose_ratio(n - c, n, k)


def pass_hat_k(n: Any, c: Any, k: Any) -> np.ndarray:
    """Unbiased chance that all of k trials succeed, from c successes in n: C(c, k) / C(n, k); not (c/n)^k.

    Elementwise; NaN where n < k. Source: arXiv 2406.12045.

    >>> pass_hat_k(10, 7, [2, 3, 5]).round(4).tolist()
    [0.4667, 0.2917, 0.0833]
    """
    n, c, k = _counts(n, c, k)
    return choose_ratio(c, n, k)


def choose_ratio(a: np.ndarray, n: np.ndarray, k: np.ndarray) -> np.ndarray:
    """C(a, k) / C(n, k) = Π_{i<k} (a-i) / (n-i): exact zeros, no overflow."""
    i = np.arange(k.max(initial=0))
    with np.errstate(divide="ignore", invalid="ignore"):
        factors = np.clip(a[..., None] - i, 0, None) / (n[..., None] - i)
    ratio = np.where(i < k[..., None], factors, 1.0).prod(-1)
    return np.where(n < k, np.nan, ratio)


def _counts(n: Any, c: Any, k: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    n, c, k = np.broadcast_arrays(*(np.asarray(x, dtype=np.int64) for x in (n, c, k)))
    if (c > n).any() or (c < 0).any() or (k < 1).any():
        raise InputError("pass@k needs 0 <= c <= n and k >= 1: c successes in n trials, k of them drawn")
    return n, c, k


def _t(level: float, freedom: float) -> float:
    return float(stats.t.ppf((1 + level) / 2, freedom)) if freedom >= 1 else math.nan


def _units(seen: np.ndarray) -> tuple[int, int]:
    """Number of tasks and of runs that have a value."""
    return int(seen.any(0).sum()), int(seen.any(1).sum())


def _clusters(kind: str, seen: np.ndarray) -> str:
    return f"{kind}, clustered by " + ("task" if _units(seen)[1] <= 1 else "task and run")
