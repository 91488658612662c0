"""Growth and chance: does what repetition earns go on for ever, and is it more than luck?

A sum over n repetitions is unbounded if the n-th pays no less than about 1/n of the first. The 40 repetitions up to the
200th are compared with the 40 up to the 60th: 40, so that a payment in every fifth or eighth turn counts in both. 1/√n
and a constant can be farmed; 1/n³, a bonus paid once and a sum with a bound that 160 repetitions reach cannot.
"""

from __future__ import annotations

import math

import numpy as np

CHECKS = (20, 60, 160, 200)
"""Repetitions after which sums are compared."""
FADES = float((np.arange(161, 201) ** -1.05).sum() / (np.arange(21, 61) ** -1.05).sum())
"""A payment that shrinks faster than this from one to the other has a finite sum."""


def endless(sums: np.ndarray) -> np.ndarray:
    """bool[n]: whether reward sums float64[n, 4], after 20, 60, 160 and 200 repetitions, keep growing without bound."""
    early, late = sums[:, 1] - sums[:, 0], sums[:, 3] - sums[:, 2]
    return np.asarray((late > 0) & (late >= FADES * early))


def beyond_chance(gains: np.ndarray, owner: np.ndarray, number: int, otherwise: float = 0.0) -> tuple[np.ndarray, ...]:
    """(means, significant): mean of `gains` by kind `owner`, float64[number], and whether it is above 0 beyond chance.

    By more than 2 + √(2 ln number) standard errors, the largest of so many zero-mean ones hardly being there. A kind
    with one example takes the typical (median) deviation of the others, or `otherwise` where there are none.
    """
    unit = float(np.abs(gains).max(initial=0.0)) or 1.0
    x = gains / unit
    count = np.bincount(owner, minlength=number)
    mean = np.bincount(owner, x, number) / np.maximum(count, 1)
    spread = np.bincount(owner, np.square(x - mean[owner]), number) / np.maximum(count - 1, 1)
    several = count > 1
    typical = float(np.median(spread[several])) if several.any() else (otherwise / unit) ** 2
    error = np.sqrt(np.where(several, spread, typical) / np.maximum(count, 1))
    return mean * unit, mean > np.maximum(error * (2.0 + math.sqrt(2.0 * math.log(max(number, 1)))), 1e-12)
