"""Scores between two anchors: how much of the way from a baseline to a reference, and what level that is.

The reducer over runs is the caller's and is to be named: the maximum of 8 runs rises with luck alone
(`reducers.per_task` has `best_of`, chosen by the score itself or on development tasks). Left out: judged novelty.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import polars as pl

from palaestra.errors import InputError, nearest, need_columns

LEVELS = {
    1: "nothing runs",
    2: "runs on development tasks, not on the test",
    3: "beats the baseline on neither",
    4: "beats the baseline on development tasks only",
    5: "beats it on the test by less than 5 % of the human margin",
    6: "beats it on the test by at least 5 % of the human margin",
}


def normalise_between(score: Any, baseline: Any, reference: Any) -> Any:
    """Share of the gap closed, (score - baseline) / (reference - baseline): 0 at the baseline, 1 at the reference.

    It works for losses too.

    MLRC-Bench [159] (arXiv 2504.09702) prints 100 times it, with the best human as the reference. Takes numbers, arrays
    or polars expressions; not clipped. NaN (null) where both anchors are equal.

    >>> round(100 * normalise_between(0.510, 0.4933, 0.83), 2)
    4.96
    """
    if any(isinstance(x, pl.Expr) for x in (score, baseline, reference)):
        gap = reference - baseline
        return pl.when(gap != 0).then((score - baseline) / gap)
    gap = np.asarray(reference, float) - np.asarray(baseline, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.where(gap != 0, (np.asarray(score, float) - baseline) / gap, np.nan)
    return float(value) if value.ndim == 0 else value


def improvement(score: Any, baseline: Any) -> Any:
    """Relative improvement over a baseline: (score - baseline) / |baseline|.

    [159] calls it absolute, and prints it beside the share of the gap.
    """
    return (score - baseline) / abs(baseline)


def standardise_error(error: Any, mean: Any, sd: Any) -> Any:
    """Standardised error (error - mean) / sd; `mean`, `sd` are of an uninformed prior's errors; below 0 is better."""
    return (error - mean) / sd


def capability_level(
    dev: pl.Expr | str, test: pl.Expr | str, baseline: pl.Expr | str, reference: pl.Expr | str
) -> pl.Expr:
    """Polars expression for the level 1 to 6 of [159] (`LEVELS`) of four given columns: dev, test, baseline, reference.

    The test margin is level 5 below 5 % of the reference's margin, or below 1e-3 of the metric. Larger is better; for a
    loss give the negatives.

    >>> table = pl.DataFrame({"dev": [None, .6, .4, .6, .6, .6], "test": [None, None, .4, .4, .51, .6]})
    >>> table.select(capability_level("dev", "test", pl.lit(.4933), pl.lit(.83))).to_series().to_list()
    [1, 2, 3, 4, 5, 6]
    """
    given = (pl.col(x) if isinstance(x, str) else x for x in (dev, test, baseline, reference))
    d, t, b, r = (x.cast(pl.Float64).fill_nan(None) for x in given)  # NaN is no score
    margin = t - b
    small = (margin < 0.05 * (r - b)) | (margin < 1e-3)
    level = pl.when(d.is_null() & t.is_null()).then(1).when(t.is_null()).then(2)
    level = level.when((margin <= 0) & ((d <= b) | d.is_null())).then(3).when(margin <= 0).then(4)
    return level.when(small).then(5).otherwise(6).alias("level")


def gap_closed(runs: pl.DataFrame, reducer: Literal["dev", "max", "mean", "median"] = "dev") -> pl.DataFrame:
    """Table per task of runs (task, dev, test, baseline, reference): share of the gap `closed`, `level` 1 to 6.

    Columns: task, level, runs, failed, closed. reducer says how the runs of a task become one number.

    runs: task, dev, test, baseline, reference; a null test score (NaN) is a failed run, which closes nothing; where
    baseline and reference are equal, there is no gap, and `closed` is null. With a column `snapshot` the rows of one
    `run` of a task are its snapshots, and the one with the best dev score stands for the run. reducer:
    "dev" takes the run with the best score on development tasks; "max", as on the leaderboard, rises with luck alone.
    level: of the scores that are reduced in the same way, a failed test counting as the baseline.

    Raises:
        InputError: there is no such reducer. MissingColumnError: a column is missing.
    """
    known = ("dev", "max", "mean", "median")
    if reducer not in known:
        raise InputError(f"gap_closed: reducer={reducer!r}{nearest(str(reducer), known)}")
    need_columns("gap_closed", runs.columns, ("task", "dev", "test", "baseline", "reference"))
    best = pl.col("dev").fill_null(-math.inf).arg_max()
    shown = ("dev", "test", "baseline", "reference")
    runs = runs.with_columns(pl.col(shown).cast(pl.Float64).fill_nan(None))
    if "snapshot" in runs.columns:
        need_columns("gap_closed: snapshots", runs.columns, ("run",))
        runs = runs.group_by("task", "run", maintain_order=True).agg(pl.col(shown).get(best))
    closed = normalise_between(pl.col("test"), pl.col("baseline"), pl.col("reference")).fill_null(0.0)
    closed = pl.when(pl.col("baseline") != pl.col("reference")).then(closed)  # no gap is not a gap that stays open

    def reduced(column: pl.Expr) -> pl.Expr:
        return column.get(best) if reducer == "dev" else getattr(column, reducer)()

    test = pl.col("test") if reducer == "dev" else pl.col("test").fill_null(pl.col("baseline"))
    return (
        runs.with_columns(closed=closed)
        .group_by("task", maintain_order=True)
        .agg(
            reduced(pl.col("closed")).alias("value"),
            reduced(pl.col("dev")),
            pl.when(pl.col("test").count() > 0).then(reduced(test)).alias("test"),
            pl.col("baseline", "reference").get(best),
            runs=pl.len(),
            failed=pl.col("test").null_count(),
        )
        .select("task", capability_level(*shown), "runs", "failed", closed="value")
    )


def luck_of_the_best(runs: int, *, gap_noise: float = 1.0) -> float:
    """Expected maximum of `runs` results that are pure noise, times the noise `gap_noise`: the bias of max-of-n.

    E max of n standard normals by its integral; 8 runs with noise of 3 % of the gap "close" 4.27 % of it.

    >>> round(luck_of_the_best(8, gap_noise=3.0), 2)
    4.27
    """
    from scipy import integrate, stats

    if runs < 1:
        raise InputError(f"luck_of_the_best: runs={runs}, but it takes at least one")
    density = lambda x: x * runs * stats.norm.pdf(x) * stats.norm.cdf(x) ** (runs - 1)  # noqa: E731
    return gap_noise * float(integrate.quad(density, -12, 12)[0])
