"""Aggregates of a score matrix runs x tasks that do not hang on outliers, with stratified bootstrap intervals.

Interquartile mean, optimality gap, probability of improvement and performance profiles as in arXiv 2108.13264, and
equal to its released code (rliable). Left out: BCa intervals; median and mean are NumPy's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
import polars as pl

from palaestra.errors import InputError
from palaestra.evaluation.intervals import RESAMPLES, Estimate, cells, matrix

Statistic = Callable[[np.ndarray], np.ndarray]
"""float64[..., runs, tasks] -> float64[...], so that a bootstrap is one call."""
_BLOCK = 1 << 22


def score_matrix(trials: pl.DataFrame, *, value: str = "score") -> np.ndarray:
    """Score matrix float64[runs, tasks] of a system's table of trials, cell means; a single run's trials are the runs.

    Raises:
        InputError: a run lacks a task; the aggregates need them all.
    """
    if trials["run"].n_unique() == 1 and "trial" in trials.columns:
        trials = trials.with_columns(run=pl.col("trial").cast(pl.String))
    values = matrix(cells(trials, value), "mean")
    if not np.isfinite(values).all():
        missing = int((~np.isfinite(values)).sum())
        raise InputError(f"score_matrix: {missing} of {values.size} cells run x task have no {value}; drop those tasks")
    return values


def interquartile_mean(scores: np.ndarray) -> np.ndarray:
    """Interquartile mean (IQM) over runs x tasks of scores float64[..., runs, tasks]: the mean of the middle half.

    Nearly as robust as the median, and more efficient.

    >>> float(interquartile_mean(np.array([[0.0, 1.0, 2.0, 100.0]])))
    1.5
    """
    flat = scores.reshape(*scores.shape[:-2], -1)
    cut = int(0.25 * flat.shape[-1])
    part = np.partition(flat, (cut, flat.shape[-1] - cut - 1), axis=-1) if cut else flat
    return np.asarray(part[..., cut : flat.shape[-1] - cut].mean(axis=-1))


def optimality_gap(scores: np.ndarray, *, target: float = 1.0) -> np.ndarray:
    """Optimality gap: mean of max(target - score, 0) over scores float64[..., runs, tasks]; smaller is better."""
    return np.asarray(target - np.minimum(scores, target).mean(axis=(-2, -1)))


def probability_of_improvement(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Probability that a run of `a` beats one of `b`, ties half, mean over tasks; of float64[..., runs, tasks] each."""
    above = (a[..., :, None, :] > b[..., None, :, :]).mean(axis=(-3, -2))
    equal = (a[..., :, None, :] == b[..., None, :, :]).mean(axis=(-3, -2))
    return np.asarray((above + equal / 2).mean(axis=-1))


def bootstrap_interval(
    scores: np.ndarray,
    statistic: Statistic = interquartile_mean,
    *,
    over: Literal["runs", "runs and tasks"] = "runs",
    corrected: bool = True,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """`Estimate` of a statistic (IQM) of scores float64[runs, tasks], with a bootstrap interval; runs redrawn per task.

    over="runs and tasks" redraws tasks as well, then the claim is about tasks like these. corrected: the percentiles'
    distance from the estimate is multiplied by √(R/(R-1)) (over runs) or √(T/(T-1)) (runs and tasks), what redrawing
    few units lacks, NaN of a single one; False gives rliable's interval, which is too narrow below some 10 runs.
    """
    drawn = np.concatenate([statistic(part) for part in _resampled(scores, over != "runs", resamples, seed)])
    runs, tasks = scores.shape
    point = float(statistic(scores))
    low, high = _interval(drawn, point, (runs if over == "runs" else tasks) if corrected else 0, level)
    return Estimate(point, float(low), float(high), scores.size, tasks, runs, f"bootstrap over {over}")


def improvement_interval(
    a: np.ndarray,
    b: np.ndarray,
    *,
    corrected: bool = True,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """`Estimate` of `probability_of_improvement` of arrays `a` over `b` [runs, tasks], bootstrap over the runs of both.

    The ends are NaN if either has a single run and `corrected`.

    Raises:
        InputError: the two do not have the same tasks.
    """
    if a.shape[1] != b.shape[1]:
        raise InputError(f"probability of improvement: {a.shape[1]} tasks against {b.shape[1]}; give both the same")
    step = max(1, _BLOCK // (len(a) * len(b) * a.shape[1]))
    pairs = zip(
        _resampled(a, False, resamples, seed, step), _resampled(b, False, resamples, seed + 1, step), strict=True
    )
    drawn = np.concatenate([probability_of_improvement(x, y) for x, y in pairs])
    point, runs = float(probability_of_improvement(a, b)), min(len(a), len(b))
    low, high = np.clip(_interval(drawn, point, runs if corrected else 0, level), 0, 1)
    return Estimate(point, float(low), float(high), a.size + b.size, a.shape[1], runs, "bootstrap over runs")


def performance_profile(
    scores: np.ndarray, thresholds: np.ndarray, *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> pl.DataFrame:
    """Performance profile of array `scores` [runs, tasks], a table row per threshold: share above it, bootstrap bounds.

    Columns: threshold, share, low, high (NaN of a single run), n.
    """
    thresholds = np.asarray(thresholds, float)

    def shares(x: np.ndarray) -> np.ndarray:
        flat = np.sort(x.reshape(*x.shape[:-2], -1), axis=-1)
        if flat.ndim == 1:
            return 1 - np.searchsorted(flat, thresholds, side="right") / flat.size
        return np.stack([(flat > t).mean(axis=-1) for t in thresholds], axis=-1)

    drawn = np.concatenate([shares(part) for part in _resampled(scores, False, resamples, seed)])
    share = shares(scores)
    low, high = (x.clip(0, 1) for x in _interval(drawn, share, len(scores), level))
    table = pl.DataFrame({"threshold": thresholds, "share": share, "low": low, "high": high})
    return table.with_columns(n=pl.lit(scores.size))


def _interval(drawn: np.ndarray, point: float | np.ndarray, units: int, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Percentiles, stretched for `units` redrawn units (0: not stretched); NaN: one alone tells no spread."""
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
    stretch = math.sqrt(units / (units - 1)) if units > 1 else 1.0 if units == 0 else math.nan
    return point + stretch * (low - point), point + stretch * (high - point)


def _resampled(
    scores: np.ndarray, tasks_too: bool, resamples: int, seed: int, step: int | None = None
) -> Iterator[np.ndarray]:
    """Blocks float64[n, runs, tasks] of redrawn matrices."""
    rng = np.random.default_rng(seed)
    runs, tasks = scores.shape
    step = step or max(1, _BLOCK // scores.size)
    for start in range(0, resamples, step):
        shape = (min(step, resamples - start), runs, tasks)
        column = rng.integers(0, tasks, (shape[0], 1, tasks)) if tasks_too else np.arange(tasks)
        yield scores[rng.integers(0, runs, shape), column]
