"""Bradley-Terry in linear rewards, for tables of any length: Newton's method on differences of features.

The gradient is exact and summed chunk by chunk; the curvature, which only steers the step, is that of every k-th row
where there are many. So a million pairs of 512 numbers take some ten passes over the data, not one matrix product of
the whole table per step.
"""

from __future__ import annotations

import numpy as np
import scipy

from palaestra.errors import InputError

CHUNK = 8192
"""Rows at a time: what is made of them stays in the cache's reach."""
ENOUGH = 64
"""Rows per column that steer a step well; the curvature is taken from so many."""


def fit_differences(
    gap: np.ndarray,
    *,
    margin: np.ndarray | None = None,
    weight: np.ndarray | None = None,
    ridge: float | np.ndarray = 1e-3,
    tolerance: float = 1e-10,
    steps: int = 200,
) -> np.ndarray:
    """Fits weights w of a logistic (Bradley-Terry) model to feature differences `gap` of pairs: float64[columns].

    They minimise Σ weight · -log σ(w·gap - margin) / Σ weight + ridge/2 · |w|².

    Args:
        gap: float32 or float64[pairs, columns], features of the chosen side less those of the rejected one.
        margin: per pair, lead that the chosen side should have; default: 0.
        weight: per pair; default: 1.
        ridge: weight of |w|²/2; or one for each column, 0 for a constant, which is shrunk by nothing.
        tolerance: of the gradient's norm; float32 data end at some 1e-7 of it.
        steps: most Newton steps.

    Raises:
        InputError: there is no pair of positive weight, or a value is not finite.
    """
    count, columns = gap.shape
    shrink = np.broadcast_to(np.asarray(ridge, np.float64), columns)
    w8 = None if weight is None else np.asarray(weight, np.float64)
    total = float(count if w8 is None else w8.sum())
    if not total > 0:
        raise InputError("a reward cannot be fitted: no pair was decided (or all weights are 0)")
    lead = None if margin is None else np.asarray(margin, np.float64)
    stride = max(1, count // (ENOUGH * max(columns, 1)))

    def evaluate(w: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        value, slope, curve = 0.0, np.zeros(columns), np.zeros((columns, columns))
        point, seen = w.astype(gap.dtype), 0.0
        for start in range(0, count, CHUNK):
            x = gap[start : start + CHUNK]
            part = slice(start, start + len(x))
            z = (x @ point).astype(np.float64) - (0.0 if lead is None else lead[part])
            wrong = np.exp(-np.logaddexp(0.0, z))  # σ(-z)
            by = np.ones(len(x)) if w8 is None else w8[part]
            value += float((by * np.logaddexp(0.0, -z)).sum())
            slope -= (by * wrong).astype(gap.dtype) @ x
            some = slice((-start) % stride, None, stride)
            steep = by[some] * wrong[some] * (1 - wrong[some])
            root = x[some] * np.sqrt(steep).astype(gap.dtype)[:, None]
            curve += root.T @ root
            seen += float(by[some].sum())
        curve = curve / max(seen, 1e-300) + np.diag(shrink)
        return value / total + float(w @ (shrink * w)) / 2, slope / total + shrink * w, curve

    noise = 4 * float(np.finfo(gap.dtype).eps)
    point = np.zeros(columns)
    with np.errstate(invalid="ignore"):
        value, slope, curve = evaluate(point)
    if not (np.isfinite(value) and np.isfinite(slope).all()):
        raise InputError("a reward cannot be fitted: a feature, margin or weight is not finite")
    for _ in range(steps):
        size = float(np.linalg.norm(slope))
        if size <= tolerance:
            break
        jitter = 1e-12 * float(np.trace(curve)) / max(columns, 1)
        step = scipy.linalg.cho_solve(scipy.linalg.cho_factor(curve + jitter * np.eye(columns)), slope)
        length, gain = 1.0, float(slope @ step)
        while length > 1e-6:
            after = evaluate(point - length * step)
            flat = after[0] <= value + noise * abs(value) and float(np.linalg.norm(after[1])) < size / 2
            if flat or after[0] <= value - 1e-4 * length * gain:
                break
            length /= 2
        else:
            break  # no step is better by more than rounding
        point, (value, slope, curve) = point - length * step, after
    return point
