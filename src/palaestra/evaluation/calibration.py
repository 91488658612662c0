"""Does a system know when it is right? Confidence against success: calibration, discrimination, and what to leave out.

Left out: recalibration (it needs a second set of trials).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import scipy

from palaestra.errors import InputError
from palaestra.evaluation.intervals import RESAMPLES, Estimate, wilson


@dataclass(frozen=True)
class Calibration:
    """Data of `calibration`: ECE, Brier, AUROC, AURC, E-AURC of confidence, with intervals, and the binned curve.

    ece, brier: errors, smaller is better. auroc: chance that a success had more confidence than a failure.

    aurc: mean failure rate among the most confident, over all shares kept; eaurc: what of it is due to their order.
    Each with a bootstrap interval over tasks. ece_p: p of "confidence is the chance of success". bins: the curve,
    `confidence, success, low, high, n` per bin.
    """

    ece: Estimate
    brier: Estimate
    auroc: Estimate
    aurc: Estimate
    eaurc: Estimate
    ece_p: float
    bins: pl.DataFrame


def calibration(
    confidence: Any,
    success: Any,
    *,
    cluster: Any = None,
    bins: int = 10,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Calibration:
    """`Calibration` measures of confidences in [0, 1] against success 0 or 1; pairs with a null are left out.

    ECE = Σ_b n_b/n · |mean success - mean confidence| over `bins` equal widths; Brier = mean (confidence - success)²;
    AURC as in arXiv 1805.08206, E-AURC = AURC - that of the perfect order. (HAL, arXiv 2510.11977, reports 1 - each.)
    Ties in confidence share their rank. cluster: of each pair, its task or a family of tasks; None: each is
    its own.

    The ECE of few trials is biased upwards, also for a perfect forecaster; read it beside the curve, whose bins have
    Wilson's intervals. The intervals of the summary numbers are percentiles of a bootstrap over clusters. The ECE's is
    normal around the estimate less its bootstrap bias, widened by that bias, and reaches down to 0 unless a calibrated
    forecaster (simulated, trials taken as independent) would rarely look that bad: conservative
    for a calibrated one. `ece` itself is not corrected.

    Raises:
        InputError: a confidence outside [0, 1], or nothing is known.
    """
    table = pl.DataFrame(
        {"c": pl.Series(confidence, dtype=pl.Float64), "s": pl.Series(success).cast(pl.Float64)}
    ).with_columns(cluster=pl.Series(cluster) if cluster is not None else pl.int_range(pl.len()))
    table = table.with_columns(pl.col("c", "s").fill_nan(None)).drop_nulls(["c", "s"])
    if table.is_empty() or not table["c"].is_between(0, 1).all():
        wrong = table.filter(~pl.col("c").is_between(0, 1))
        what = f"{wrong['c'][0]} is no confidence in [0, 1]" if len(wrong) else "no trial has both numbers"
        raise InputError(f"calibration: {what}")
    table = table.sort("c", descending=True)
    c, s = table["c"].to_numpy(), table["s"].to_numpy()
    ids = table["cluster"].rank("dense").to_numpy().astype(int) - 1
    clusters = int(ids.max()) + 1
    point = _summaries(c, s, np.ones((1, len(c))), bins)[:, 0]
    drawn = np.random.default_rng(seed).multinomial(clusters, np.full(clusters, 1 / clusters), size=resamples)
    step = max(1, (1 << 22) // len(c))
    spread = np.concatenate(
        [_summaries(c, s, drawn[i : i + step, ids].astype(float), bins) for i in range(0, resamples, step)], axis=1
    )
    known = np.isfinite(spread).any(axis=1)  # without a success or a failure there is no AUROC
    low, high = np.full((2, len(spread)), math.nan)
    low[known], high[known] = np.nanquantile(spread[known], [(1 - level) / 2, (1 + level) / 2], axis=1)
    bias = np.nanmean(spread[0]) - point[0]
    margin = scipy.stats.norm.ppf((1 + level) / 2) * math.hypot(np.nanstd(spread[0]), bias)
    low[0], high[0] = max(0.0, point[0] - bias - margin), max(0.0, point[0] - bias + margin)
    p = _null_pvalue(c, point[0], bins, resamples, np.random.default_rng(seed))
    if p > 1 - level:
        low[0] = 0.0
    kind = "bootstrap over clusters"
    ece, brier, auroc, aurc, eaurc = (
        Estimate(float(mean), float(a), float(b), len(c), clusters, 1, kind)
        for mean, a, b in zip(point, low, high, strict=True)
    )
    return Calibration(ece, brier, auroc, aurc, eaurc, ece_p=p, bins=_curve(c, s, bins, level))


def _bin(c: np.ndarray, bins: int) -> np.ndarray:
    return np.asarray(np.minimum((c * bins).astype(int), bins - 1))


def _summaries(c: np.ndarray, s: np.ndarray, weight: np.ndarray, bins: int) -> np.ndarray:
    """float64[5, n]: ECE, Brier, AUROC, AURC, E-AURC for each row of weights; c falls."""
    total = weight.sum(1)
    onto = np.eye(bins)[_bin(c, bins)]
    ece = np.abs((weight * (s - c)) @ onto).sum(1) / total
    brier = (weight * (s - c) ** 2).sum(1) / total
    start = np.flatnonzero(np.concatenate([[True], np.diff(c) != 0]))  # one block of equal confidence at a time
    good, bad = (np.add.reduceat(weight * x, start, axis=1) for x in (s, 1 - s))
    below = bad.sum(1, keepdims=True) - np.cumsum(bad, 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        auroc = (good * (below + bad / 2)).sum(1) / (good.sum(1) * bad.sum(1))
        kept, failed = np.cumsum(good + bad, 1), np.cumsum(bad, 1)
        aurc = np.nansum((good + bad) * failed / kept, axis=1) / total
        rate = bad.sum(1) / total
        best = rate + np.where(rate < 1, (1 - rate) * np.log(np.maximum(1 - rate, 1e-300)), 0.0)
    return np.stack([ece, brier, auroc, aurc, aurc - best])


def _null_pvalue(c: np.ndarray, observed: float, bins: int, resamples: int, rng: np.random.Generator) -> float:
    onto = np.eye(bins)[_bin(c, bins)]
    step = max(1, (1 << 22) // len(c))
    hits = 0
    for start in range(0, resamples, step):
        right = rng.random((min(step, resamples - start), len(c))) < c
        hits += int((np.abs((right - c) @ onto).sum(1) / len(c) >= observed - 1e-12).sum())
    return (hits + 1) / (resamples + 1)


def _curve(c: np.ndarray, s: np.ndarray, bins: int, level: float) -> pl.DataFrame:
    which = _bin(c, bins)
    n = np.bincount(which, minlength=bins)
    keep = n > 0
    right, sure = (np.bincount(which, x, minlength=bins)[keep] for x in (s, c))
    low, high = wilson(right, n[keep], level=level)
    columns = {"confidence": sure / n[keep], "success": right / n[keep], "low": low, "high": high, "n": n[keep]}
    return pl.DataFrame(columns)


def calibration_pvalue(confidence: Any, success: Any) -> float:
    """Spiegelhalter's test (1986): two-sided p-value of "the confidence is the chance of success".

    z = Σ (s - c)(1 - 2c) / √Σ (1 - 2c)² c (1 - c); NaN if every confidence is 0, 1/2 or 1.
    """
    c, s = (np.asarray(x, float) for x in (confidence, success))
    variance = ((1 - 2 * c) ** 2 * c * (1 - c)).sum()
    if not variance > 0:
        return float("nan")
    return float(2 * scipy.stats.norm.sf(abs(((s - c) * (1 - 2 * c)).sum()) / np.sqrt(variance)))
