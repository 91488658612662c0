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
    """Linear utility of a vector reward: Σ w r."""
    return np.asarray(vector @ weights)


def squares(vector: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Convex utility of a vector reward, Σ w r²: of equal sums the uneven one is better."""
    return np.asarray(vector**2 @ weights)


def product(vector: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Π r^w of vector rewards, negative parts as 0: a concave utility, by equal weights best for even vectors.

    For equal weights.
    """
    return np.asarray(np.prod(np.maximum(vector, 0.0) ** weights, axis=-1))


UTILITIES: dict[str, Utility] = {"linear": linear, "squares": squares, "product": product}


def esr(returns: np.ndarray, utility: Utility, weights: np.ndarray) -> float:
    """Expected scalarised return: mean over episodes of u(return), returns float64[episodes, d].

    >>> returns, even = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0.5, 0.5])
    >>> esr(returns, product, even), ser(returns, product, even)
    (0.0, 0.5000000000000001)
    """
    return float(np.mean(utility(np.asarray(returns, float), weights)))


def ser(returns: np.ndarray, utility: Utility, weights: np.ndarray) -> float:
    """Scalarised expected return: u(mean return). Equal to `esr` for linear utilities only."""
    return float(utility(np.asarray(returns, float).mean(axis=0), weights))


def beach_capacity(consumption: np.ndarray, psi: float) -> np.ndarray:
    """Worth of a beach section with x people, x e^(-x/ψ); greatest at x = ψ.

    >>> float(beach_capacity(np.array(7), 7).round(3))
    2.575
    """
    return np.asarray(consumption * np.exp(-np.asarray(consumption, float) / psi))


def beach_optimum(people: int, sections: int, psi: float) -> tuple[float, np.ndarray]:
    """Greatest total capacity reward, and how many people each section then has (exact, by dynamic programming).

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
