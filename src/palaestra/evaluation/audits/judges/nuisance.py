"""Does a score follow what it should not: length, style, a form? Slopes inside content-matched rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import polars as pl
import scipy

from palaestra.evaluation.audits.finding import Finding
from palaestra.evaluation.audits.judges.common import need, number, span, verdict


def nuisance_slope(
    rows: pl.DataFrame,
    *,
    nuisance: str = "length",
    score: str = "score",
    match: str | Sequence[str] = "content",
    least: float = 0.1,
    level: float = 0.95,
) -> Finding:
    """By how many of its standard deviations does a score move per standard deviation of what should not matter?

    Both are centred inside each value of `match` (the same content, or the same problem and the same truth), so that
    what the content deserves drops out: slope = Σ x·y / Σ x², times sd(x) / sd(y) of what is left. The interval is
    clustered by `match` (CR1, Student's t). numbers: `slope` (in standard deviations), `low`, `high`, `raw` (in units
    of the two), `auc` (chance that of two matched rows the one with more of it scores higher; .5 is none), `unmatched`
    (the correlation over all rows, where content is in it), `groups`, `rows`. Harmless is ± least.

    Raises:
        MissingColumnError, InputError: a column is missing, or holds no numbers.
    """
    name = f"nuisance {nuisance}"
    by = [match] if isinstance(match, str) else list(match)
    need(rows, name, *by)
    table = rows.select(*by, x=number(rows, nuisance, name), y=number(rows, score, name)).drop_nulls()
    group = (
        table.select(pl.struct(by).rank("dense").cast(pl.Int64) - 1).to_series().to_numpy()
        if len(table)
        else np.empty(0, int)
    )
    x, y = (_centred(table[c].to_numpy().astype(float), group) for c in ("x", "y"))
    moving = np.bincount(group, np.abs(x)) > 1e-12 if len(table) else np.empty(0, bool)
    groups = int(moving.sum())
    if groups < 3 or not (np.abs(y) > 1e-12).any():
        why = (
            f"{groups} groups of the same {', '.join(by)} differ in {nuisance}"
            if groups < 3
            else "the score never differs inside a group"
        )
        return Finding(
            name, "cannot tell", why, fix=f"judge answers of the same content that differ in {nuisance} alone"
        )
    square = float(x @ x)
    raw = float(x @ y) / square
    errors = np.bincount(group, x * (y - raw * x))[moving]
    error = math.sqrt(groups / (groups - 1) * float(errors @ errors)) / square
    unit = math.sqrt(square / float(y @ y))
    half = float(scipy.stats.t.ppf((1 + level) / 2, groups - 1)) * error
    slope, low, high = raw * unit, (raw - half) * unit, (raw + half) * unit
    whole = float(np.corrcoef(table.select("x", "y").to_numpy().astype(float).T)[0, 1])
    numbers = {"slope": slope, "low": low, "high": high, "raw": raw, "auc": _auc(x, y, group), "unmatched": whole}
    numbers |= {"groups": float(groups), "rows": float(len(table))}
    said = verdict(low, high, slope, least=least)
    sentence = (
        f"a standard deviation more of {nuisance} moves the score by {slope:+.2f}{span(low, high)} of its own at the "
        f"same {' and '.join(by)} ({groups} groups; {whole:+.2f} unmatched)"
    )
    fix = (
        f"train or calibrate on pairs that are equal in {nuisance} (match_on), or subtract the slope"
        if said != "pass"
        else ""
    )
    return Finding(name, said, sentence, numbers, fix=fix)


def _centred(x: np.ndarray, group: np.ndarray) -> np.ndarray:
    if not len(x):
        return x
    count = np.bincount(group)
    return np.asarray(x - (np.bincount(group, x) / np.maximum(count, 1))[group])


def _auc(x: np.ndarray, y: np.ndarray, group: np.ndarray) -> float:
    """Over pairs of rows of one group with different x: the share where y goes the same way, ties half."""
    order = np.argsort(group, kind="stable")
    x, y, group = x[order], y[order], group[order]
    agree = total = 0.0
    for offset in range(1, int(np.bincount(group).max())):  # all pairs of one group, a diagonal at a time
        same = group[offset:] == group[:-offset]
        dx, dy = np.sign(x[offset:] - x[:-offset])[same], np.sign(y[offset:] - y[:-offset])[same]
        total += float((dx != 0).sum())
        agree += float((dx * dy > 0).sum() + 0.5 * ((dx != 0) & (dy == 0)).sum())
    return agree / total if total else math.nan
