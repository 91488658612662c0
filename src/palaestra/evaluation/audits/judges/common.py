"""Shared parts of judge audits: columns, means over items, and thresholds of verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
import scipy

from palaestra.errors import InputError, need_columns
from palaestra.evaluation.audits.finding import Verdict
from palaestra.evaluation.intervals import Estimate, mean_interval
from palaestra.evaluation.logs.columns import flag

ALPHA = 0.01
"""Largest p that counts as evidence against a judge."""
FEW = 10
"""Fewer items than that say nothing about how members agree or err together: two points are always on a line."""


def need(rows: pl.DataFrame, what: str, *names: str) -> None:
    """Raises an error if a table of rows is empty or lacks one of the columns `names`; else does nothing."""
    need_columns(what, rows.columns, names)
    if not len(rows):
        raise InputError(f"{what}: the table is empty")


def number(rows: pl.DataFrame, name: str, what: str) -> pl.Series:
    """Series: a frame's column as Float64, NaN as null; InputError for infinite values or a column without numbers."""
    need(rows, what, name)
    dtype = rows[name].dtype
    if not (dtype.is_numeric() or dtype in (pl.Boolean, pl.Null)):
        raise InputError(f"{what}: column {name!r} holds {dtype}, expected numbers")
    found = rows[name].cast(pl.Float64).fill_nan(None)
    if found.is_infinite().any():
        raise InputError(f"{what}: column {name!r} is infinite in row {found.is_infinite().arg_max()}")
    return found


def given(verdicts: pl.DataFrame, what: str, value: str = "value") -> pl.Series:
    """Series: column `value` of a table of verdicts, null where `ok` is false."""
    values = number(verdicts, value, what)
    if "ok" not in verdicts.columns:
        return values
    return verdicts.select(pl.when(flag(verdicts, "ok", what)).then(values))[values.name]


def places(verdicts: pl.DataFrame, what: str) -> pl.Series:
    """Series: column `order` of a frame as Int8; InputError unless its values are 0, 1 and null."""
    order = verdicts["order"]
    found = order.cast(pl.Float64, strict=False)
    if (wrong := order.is_not_null() & ~found.is_in([0.0, 1.0]).fill_null(False)).any():
        raise InputError(
            f"{what}: column 'order' takes 0 where the answer in the row was shown first and 1 where second, "
            f"not {order.filter(wrong)[0]!r}"
        )
    return found.cast(pl.Int8)


def keys(rows: pl.DataFrame, *, without: Sequence[str] = ()) -> list[str]:
    """Names of the columns of a frame that identify a verdict: item (required), criterion, judge, sample, order."""
    need(rows, "verdicts", "item")
    return [n for n in ("item", "criterion", "judge", "sample", "order") if n in rows.columns and n not in without]


def resampling_unit(verdicts: pl.DataFrame) -> pl.Series:
    """Series: resampling unit of each row of frame `verdicts`: content, task, prompt or group if known, else item."""
    return verdicts[problem_column(verdicts) or "item"]


def average(values: pl.Series) -> float:
    """Mean of a Series without its nulls, as a float; NaN if all are null."""
    return float(np.mean(values.drop_nulls().cast(pl.Float64).to_numpy())) if values.count() else math.nan


def over_items(values: pl.Series, items: pl.Series, *, share: bool | None = None, seed: int = 0) -> Estimate:
    """`Estimate`: mean over items of series `values`, nulls dropped, each item alike; interval clustered by item.

    However many verdicts an item has, it counts as one.
    """
    frame = pl.DataFrame({"run": pl.repeat(0, len(values), eager=True), "task": items.cast(pl.String), "x": values})
    return mean_interval(frame.with_columns(trial=pl.int_range(pl.len())), value="x", share=share, seed=seed)


def tested(p: float, effect: float, low: float, high: float, *, least: float, alpha: float) -> Verdict:
    """Verdict (str): pass if low to high is in ±least, fail (|effect| > least) or warn if p <= alpha, or cannot tell.

    Args:
        p: p-value of no effect.
        effect: Size of the effect, 0 for none.
        low: Lower end of its interval.
        high: Upper end of its interval.
        least: Largest effect that is harmless.
        alpha: Largest p that counts as evidence. Fair judges are suspected no more often than that.

    Returns:
        "pass" if the whole interval is harmless. With evidence "fail" of an effect beyond `least`, and "warn" of a
        smaller one. Otherwise "cannot tell".
    """
    if -least <= low and high <= least:
        return "pass"
    if p <= alpha:
        return "fail" if abs(effect) > least else "warn"
    return "cannot tell"


def sign_test(first: int, second: int) -> float:
    """Exact two-sided p-value of the sign test that counts `first` and `second` are equally likely.

    >>> round(sign_test(202, 271), 4)
    0.0017
    """
    return float(scipy.stats.binomtest(first, first + second).pvalue) if first + second else 1.0


def filled_columns(rows: pl.DataFrame, *names: str) -> list[str]:
    """List of the given names that are columns of the table and not all null."""
    return [name for name in names if name in rows.columns and rows[name].null_count() < len(rows)]


def problem_column(rows: pl.DataFrame) -> str | None:
    """Name of the first of a frame's columns content, task, prompt, group that is not all null; None without any."""
    return next(iter(filled_columns(rows, "content", "task", "prompt", "group")), None)


class StratifiedSlope(NamedTuple):
    """Result of `slope_within`: slope of y on x inside strata, its interval and p, and the centred values.

    raw, low, high are in units of y per unit of x; groups: clusters in which x moves.
    """

    raw: float
    low: float
    high: float
    p: float
    groups: int
    x: np.ndarray
    y: np.ndarray
    stratum: np.ndarray


def slope_within(table: pl.DataFrame, strata: Sequence[str], cluster: Sequence[str], level: float) -> StratifiedSlope:
    """`StratifiedSlope`: slope of a frame's `y` on `x`, centred per `strata`, robust by `cluster`; `level` of interval.

    By least squares.

    Args:
        table: Columns `x` and `y` without nulls, those of the strata and those of the cluster.
        strata: Columns inside whose values x and y are centred.
        cluster: Columns. Rows of one cluster resemble each other.
        level: Of the interval.

    Returns:
        The slope, its interval and its p-value (CR1 by cluster, Student's t), and the centred columns.
        NaN if x moves in fewer than three clusters.
    """

    def codes(names: Sequence[str]) -> np.ndarray:
        if not names or not len(table):
            return np.zeros(len(table), int)
        return table.select(pl.struct(names).rank("dense").cast(pl.Int64) - 1).to_series().to_numpy()

    stratum, group = codes(strata), codes(cluster)
    x, y = (centred(table[c].to_numpy().astype(float), stratum) for c in ("x", "y"))
    moving = np.bincount(group, np.abs(x)) > 1e-12 if len(table) else np.empty(0, bool)
    groups = int(moving.sum())
    nothing = StratifiedSlope(math.nan, math.nan, math.nan, math.nan, groups, x, y, stratum)
    if groups < 3:
        return nothing
    square = float(x @ x)
    raw = float(x @ y) / square
    errors = np.bincount(group, x * (y - raw * x))[moving]
    error = math.sqrt(groups / (groups - 1) * float(errors @ errors)) / square
    half = float(scipy.stats.t.ppf((1 + level) / 2, groups - 1)) * error
    p = float(2 * scipy.stats.t.sf(abs(raw) / error, groups - 1)) if error > 0 else float(abs(raw) <= 1e-12)
    return StratifiedSlope(raw, raw - half, raw + half, p, groups, x, y, stratum)


def centred(x: np.ndarray, group: np.ndarray) -> np.ndarray:
    """float64[n]: values minus the mean of their group; groups as int64[n] from 0."""
    if not len(x):
        return x
    count = np.bincount(group)
    return np.asarray(x - (np.bincount(group, x) / np.maximum(count, 1))[group])


def limited(found: Estimate, *, good: float, bad: float) -> Verdict:
    """Verdict (str) on an `Estimate` to be small: fail above `bad`, warn above `good`, pass below, by its interval.

    A mean above `good` with an interval around it is no evidence, so it cannot tell.
    """
    if not math.isfinite(found.mean):
        return "cannot tell"
    low, high = (found.mean if not math.isfinite(x) else x for x in (found.low, found.high))
    if low > good:
        return "fail" if low > bad else "warn"
    return "pass" if found.mean <= good and high <= bad else "cannot tell"


def bootstrap(n: int, resamples: int, seed: int) -> np.ndarray:
    """Bootstrap counts, float64[resamples, n]: how often each of n items is drawn in a resample."""
    return np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), resamples).astype(float)


def percentile_interval(draws: np.ndarray, level: float) -> tuple[float, float]:
    """(low, high) percentiles of the finite bootstrap draws: an interval at this level; NaN if no draw is finite."""
    draws = draws[np.isfinite(draws)]
    if not len(draws):
        return math.nan, math.nan
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def span(low: float, high: float, digits: int = 2) -> str:
    """Interval of `low` and `high` as text, ` [0.41, 0.62]`; empty if an end is not finite."""
    return f" [{low:.{digits}f}, {high:.{digits}f}]" if math.isfinite(low) and math.isfinite(high) else ""
