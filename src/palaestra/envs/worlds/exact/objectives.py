"""Several objectives: utilities of a reward vector, the two orders of expectation, and the beach problem's optimum.

MOMAland (arXiv 2407.16312); the beach of Mannion et al. 2018. Hypervolume, expected utility over weights and dominance
are in `palaestra.evaluation.dominance`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from palaestra.errors import InputError

Utility = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Vectors float64[..., d] and weights float64[d] -> float64[...]."""


def linear(vector: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Linear utility of vector rewards: Σ w r over the last axis."""
    return np.asarray(vector @ weights)


def squares(vector: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Convex utility of vector rewards, Σ w r² over the last axis; for equal sums uneven vectors score higher."""
    return np.asarray(vector**2 @ weights)


def product(vector: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Concave utility of vector rewards, Π max(r, 0)^w over the last axis; equal weights favour even vectors.

    For equal weights.
    """
    return np.asarray(np.prod(np.maximum(vector, 0.0) ** weights, axis=-1))


UTILITIES: dict[str, Utility] = {"linear": linear, "squares": squares, "product": product}


def esr(returns: np.ndarray, utility: Utility, weights: np.ndarray) -> float:
    """Expected scalarised return (ESR), a float: mean of `utility(returns, weights)`, returns float64[episodes, goals].

    >>> returns, even = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0.5, 0.5])
    >>> esr(returns, product, even), ser(returns, product, even)
    (0.0, 0.5000000000000001)
    """
    return float(np.mean(utility(np.asarray(returns, float), weights)))


def ser(returns: np.ndarray, utility: Utility, weights: np.ndarray) -> float:
    """Scalarised expected return (SER): `utility(mean, weights)` of returns float64[episodes, d]; `esr` if linear."""
    return float(utility(np.asarray(returns, float).mean(axis=0), weights))


def beach_capacity(consumption: np.ndarray, psi: float) -> np.ndarray:
    """Capacity utility of a beach section with x people (`consumption`), x e^(-x/psi), elementwise; most at x = psi.

    >>> float(beach_capacity(np.array(7), 7).round(3))
    2.575
    """
    return np.asarray(consumption * np.exp(-np.asarray(consumption, float) / psi))


def beach_optimum(people: int, sections: int, psi: float) -> tuple[float, np.ndarray]:
    """Largest total of `beach_capacity` with `psi` and the number of people in each section: (float, int array), exact.

    >>> value, spread = beach_optimum(100, 6, 7)
    >>> round(value, 2), sorted(spread.tolist())
    (12.88, [7, 7, 7, 7, 7, 65])

    Raises:
        InputError: fewer than 0 people, fewer than one section, or psi not above 0.
    """
    if people < 0 or sections < 1 or not psi > 0:
        raise InputError(f"beach_optimum: need people={people} >= 0, sections={sections} >= 1, psi={psi} > 0")
    worth = beach_capacity(np.arange(people + 1), psi)
    best, choices = np.where(np.arange(people + 1) == 0, 0.0, -np.inf), []
    for _ in range(sections):
        used, left = np.meshgrid(np.arange(people + 1), np.arange(people + 1), indexing="ij")
        options = np.where(left <= used, worth[left] + best[np.maximum(used - left, 0)], -np.inf)
        choices.append(options.argmax(axis=1))
        best = options.max(axis=1)
    spread, people_left = [], people
    for choice in reversed(choices):
        spread.append(int(choice[people_left]))
        people_left -= spread[-1]
    return float(best[people]), np.array(spread)
