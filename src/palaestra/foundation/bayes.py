"""Bayesian optimisation of a few settings in [0, 1]: a Gaussian process and expected improvement.

Left out: fitting the process's own scales, and settings that are not numbers; `tune` of a recipe uses optuna for those.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy

from palaestra.errors import InputError


def expected_improvement(
    points: np.ndarray, values: np.ndarray, asked: np.ndarray, *, length: float = 0.3, noise: float = 1e-3
) -> np.ndarray:
    """Expected improvement, float64[m], of points `asked` under a Gaussian process fitted to `values` at `points`.

    EI = (μ - best)·Φ(z) + σ·φ(z), z = (μ - best)/σ, of values standardised to mean 0 and deviation 1.

    Args:
        points: where values are known, float64[n, d].
        values: float64[n].
        asked: float64[m, d].
        length: of the kernel.
        noise: variance of a value.
    """
    scale = float(values.std()) or 1.0
    y = (values - values.mean()) / scale

    def kernel(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        squares = ((one[:, None] - other[None]) ** 2).sum(2)
        near: np.ndarray = np.exp(-squares / (2 * length**2))
        return near

    factor = scipy.linalg.cho_factor(kernel(points, points) + noise * np.eye(len(points)))
    cross = kernel(asked, points)
    mean = cross @ scipy.linalg.cho_solve(factor, y)
    variance = 1 - (cross * scipy.linalg.cho_solve(factor, cross.T).T).sum(1)
    sigma = np.sqrt(np.maximum(variance, 1e-12))
    z = (mean - y.max()) / sigma
    found: np.ndarray = scale * sigma * (z * scipy.stats.norm.cdf(z) + scipy.stats.norm.pdf(z))
    return found


def maximise(
    score: Callable[[np.ndarray], float], size: int, budget: int, rng: np.random.Generator, *, first: int = 4
) -> tuple[np.ndarray, np.ndarray]:
    """Bayesian maximisation of function `score` of a point in [0, 1]^size, with `rng`: (points [budget, size], values).

    Args:
        score: of a point in [0, 1]^size, the higher the better.
        size: number of settings.
        budget: evaluations.
        rng: of the first points and of the 256 candidates of each later one.
        first: points that are drawn at random.

    Raises:
        InputError: the budget is below 1.
    """
    if budget < 1:
        raise InputError(f"maximise: budget={budget} must be at least 1")
    points = rng.random((min(first, budget), size))
    values = np.array([score(point) for point in points])
    while len(points) < budget:
        candidates = rng.random((256, size))
        best = candidates[expected_improvement(points, values, candidates).argmax()]
        points, values = np.vstack([points, best]), np.append(values, score(best))
    return points, values
