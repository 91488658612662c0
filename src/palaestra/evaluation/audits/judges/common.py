"""What audits of judges share: columns, means over items, and when a number is good, bad or unknown."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.errors import InputError, need_columns
from palaestra.evaluation.audits.finding import Verdict
from palaestra.evaluation.intervals import Estimate, mean_interval

FEW = 10
"""Fewer items than that say nothing about how members agree or err together: two points are always on a line."""


def need(rows: pl.DataFrame, what: str, *names: str) -> None:
    """Refuse a table that lacks a column, or that has no rows."""
    need_columns(what, rows.columns, names)
    if not len(rows):
        raise InputError(f"{what}: the table is empty")


def number(rows: pl.DataFrame, name: str, what: str) -> pl.Series:
    """A column as Float64, NaN as null; what is infinite is an error."""
    need(rows, what, name)
    dtype = rows[name].dtype
    if not (dtype.is_numeric() or dtype in (pl.Boolean, pl.Null)):
        raise InputError(f"{what}: column {name!r} holds {dtype}, expected numbers")
    found = rows[name].cast(pl.Float64).fill_nan(None)
    if found.is_infinite().any():
        raise InputError(f"{what}: column {name!r} is infinite in row {found.is_infinite().arg_max()}")
    return found


def given(verdicts: pl.DataFrame, what: str, value: str = "value") -> pl.Series:
    """The values of verdicts; what is not `ok` is null, whatever stands there."""
    values = number(verdicts, value, what)
    if "ok" not in verdicts.columns:
        return values
    return verdicts.select(pl.when(pl.col("ok").cast(pl.Boolean)).then(values))[values.name]


def keys(rows: pl.DataFrame, *, without: Sequence[str] = ()) -> list[str]:
    """Which columns tell one verdict from another, of those that the table has; `item` must be there."""
    need(rows, "verdicts", "item")
    return [n for n in ("item", "criterion", "judge", "sample", "order") if n in rows.columns and n not in without]


def unit(verdicts: pl.DataFrame) -> pl.Series:
    """What verdicts have in common: their group if they have one (a problem), else their item."""
    return verdicts["group" if "group" in verdicts.columns else "item"]


def average(values: pl.Series) -> float:
    """The mean of what is known; NaN of nothing."""
    return float(np.mean(values.drop_nulls().cast(pl.Float64).to_numpy())) if values.count() else math.nan


def over_items(values: pl.Series, items: pl.Series, *, share: bool | None = None, seed: int = 0) -> Estimate:
    """Mean of values with an interval that counts items, however many verdicts each has; null leaves."""
    frame = pl.DataFrame({"run": pl.repeat(0, len(values), eager=True), "task": items.cast(pl.String), "x": values})
    return mean_interval(frame.with_columns(trial=pl.int_range(pl.len())), value="x", share=share, seed=seed)


def verdict(low: float, high: float, mean: float, *, target: float = 0.0, least: float) -> Verdict:
    """How an interval lies to what is still harmless, target ± least.

    pass: inside. fail: outside as a whole. warn: the mean is outside, or the target is not in the interval. Otherwise
    the interval is too wide to tell.
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return "cannot tell" if abs(mean - target) <= least or not math.isfinite(mean) else "warn"
    inner, outer = target - least, target + least
    if inner <= low and high <= outer:
        return "pass"
    if low > outer or high < inner:
        return "fail"
    if not inner <= mean <= outer or not low <= target <= high:
        return "warn"
    return "cannot tell"


def limited(found: Estimate, *, good: float, bad: float) -> Verdict:
    """How the interval of a share that should be small lies: pass below `good`, fail above `bad`, else warn."""
    if not math.isfinite(found.mean):
        return "cannot tell"
    low, high = (found.mean if not math.isfinite(x) else x for x in (found.low, found.high))
    if found.mean <= good:
        return "pass" if high <= bad else "cannot tell"
    return "fail" if low > bad else "warn"


def bootstrap(n: int, resamples: int, seed: int) -> np.ndarray:
    """float64[resamples, n]: how often each of n items is drawn."""
    return np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), resamples).astype(float)


def ends(draws: np.ndarray, level: float) -> tuple[float, float]:
    """Percentiles of the draws that are finite."""
    draws = draws[np.isfinite(draws)]
    if not len(draws):
        return math.nan, math.nan
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def span(low: float, high: float, digits: int = 2) -> str:
    """`[0.41, 0.62]`, or nothing if there is no interval."""
    return f" [{low:.{digits}f}, {high:.{digits}f}]" if math.isfinite(low) and math.isfinite(high) else ""
