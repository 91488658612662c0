"""Does a score follow what it should not: length, style, a form? Slopes inside content-matched rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.evaluation.audits.finding import Finding
from palaestra.evaluation.audits.judges.common import ALPHA, need, number, slope_within, span, tested


def nuisance_slope(
    rows: pl.DataFrame,
    *,
    nuisance: str = "length",
    score: str = "score",
    match: str | Sequence[str] = "content",
    cluster: str | Sequence[str] | None = None,
    matched: bool = True,
    least: float = 0.1,
    level: float = 0.95,
    alpha: float = ALPHA,
) -> Finding:
    """Audit (`Finding`) of frame `rows`: SD by which a score moves per SD of a nuisance (length …), content held equal.

    Both are centred inside each value of `match` (the same content, or the same problem and the same truth), so that
    what the content deserves drops out: slope = Σ x·y / Σ x², times sd(x) / sd(y) of what is left.

    Args:
        rows: A score and a nuisance each.
        nuisance: Column of what should not matter, numbers.
        score: Column of the score, numbers.
        match: Columns that are equal in rows of the same content.
        cluster: Columns of what resembles each other; default `match`.
        matched: Whether `match` says all that the score should follow. If not, the worst verdict is "warn".
        least: Slope that is harmless, in standard deviations.
        level: Of the interval.
        alpha: Largest p that is evidence.

    Returns:
        numbers: `slope` (in standard deviations), `low`, `high`, `p` (CR1 by cluster, Student's t), `raw` (in units of
        the two), `auc` (chance that of two matched rows the one with more of it scores higher; .5 is none), `unmatched`
        (the correlation over all rows, where content is in it), `groups`, `rows`.

    Raises:
        MissingColumnError, InputError: a column is missing, or holds no numbers.
    """
    name = f"nuisance {nuisance}"
    by = [match] if isinstance(match, str) else list(match)
    families = by if cluster is None else [cluster] if isinstance(cluster, str) else list(cluster)
    every = list(dict.fromkeys((*by, *families)))
    need(rows, name, *every)
    table = rows.select(*every, x=number(rows, nuisance, name), y=number(rows, score, name)).drop_nulls(["x", "y"])
    found = slope_within(table, by, families, level)
    if found.groups < 3 or not (np.abs(found.y) > 1e-12).any():
        why = (
            f"{found.groups} groups of the same {', '.join(by)} differ in {nuisance}"
            if found.groups < 3
            else "the score never differs inside a group"
        )
        return Finding(
            name, "cannot tell", why, fix=f"judge answers of the same content that differ in {nuisance} alone"
        )
    unit = math.sqrt(float(found.x @ found.x) / float(found.y @ found.y))
    slope, low, high = found.raw * unit, found.low * unit, found.high * unit
    pairs = table.select("x", "y").to_numpy().astype(float).T
    whole = float(np.corrcoef(pairs)[0, 1]) if (np.ptp(pairs, axis=1) > 0).all() else math.nan
    auc = _auc(found.x, found.y, found.stratum)
    numbers = {"slope": slope, "low": low, "high": high, "p": found.p, "raw": found.raw, "auc": auc, "unmatched": whole}
    numbers |= {"groups": float(found.groups), "rows": float(len(table))}
    said = tested(found.p, slope, low, high, least=least, alpha=alpha)
    said = "warn" if said == "fail" and not matched else said
    sentence = (
        f"a standard deviation more of {nuisance} moves the score by {slope:+.2f}{span(low, high)} of its own at the "
        f"same {' and '.join(by)} ({found.groups} groups; {whole:+.2f} unmatched; p = {found.p:.2g})"
    )
    if said == "warn" and not matched:
        sentence += "; answers with more of it may be better"
    fix = (
        f"train or calibrate on pairs that are equal in {nuisance} (match_on), or subtract the slope"
        if said != "pass"
        else ""
    )
    return Finding(name, said, sentence, numbers, fix=fix)


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
