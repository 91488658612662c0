"""Equilibria of a threshold game: when does joining pay, if so many others join (arXiv 2510.04860)?"""

from __future__ import annotations

import numpy as np
import scipy

from palaestra.errors import InputError


def joining_gain(
    q: np.ndarray | float, n: int, k: int, *, high: float = 1.2, normal: float = 1.0, low: float = 0.8
) -> np.ndarray:
    """Expected gain of joining a game of `n`, threshold `k`, if each other joins with chance q; elementwise in q.

    If at least k of n join, everybody gets `high`; otherwise who joined gets `low` and others get `normal`.

    >>> joining_gain(np.array([0.0, 0.5]), 8, 2).round(4).tolist()
    [-0.2, 0.0094]

    Raises:
        InputError: k is not between 1 and n.
    """
    if not 1 <= k <= n:
        raise InputError(f"joining_gain: k={k} must be between 1 and n={n}")
    share = np.asarray(q, float)  # P(at least k - 1, or k, of n - 1 others join)
    joined, not_joined = scipy.special.bdtrc(k - 2.0, n - 1, share), scipy.special.bdtrc(k - 1.0, n - 1, share)
    return np.asarray(low + (high - low) * joined - normal - (high - normal) * not_joined)


def tipping_point(n: int, k: int, *, high: float = 1.2, normal: float = 1.0, low: float = 0.8) -> float | None:
    """Smallest chance q of others joining from which joining a game of `n`, threshold `k`, pays; 0.0 always; or None.

    None: never.

    >>> [round(tipping_point(8, k), 4) for k in (2, 4, 6, 8)]
    [0.125, 0.4647, 0.7152, 0.9057]

    Returns:
        q* in [0, 1), or None where joining never pays.
    """
    grid = np.linspace(0, 1, 2001)
    gains = joining_gain(grid, n, k, high=high, normal=normal, low=low)
    above = np.flatnonzero(gains > 1e-12)
    if not above.size:
        return None
    below = np.flatnonzero(gains[: above[0]] < -1e-12)
    if not below.size:  # joining pays from the first
        return 0.0

    def gain(q: float) -> float:
        return float(joining_gain(q, n, k, high=high, normal=normal, low=low))

    return float(scipy.optimize.brentq(gain, grid[below[-1]], grid[above[0]]))


def best_response_path(q: float, n: int, k: int, *, steps: int = 200, rate: float = 0.1, **pay: float) -> np.ndarray:
    """Share of joiners from `q` on, float64[steps + 1], in best-response dynamics of an (`n`, `k`) threshold game.

    Args:
        q: share in the beginning.
        n: players.
        k: how many must join.
        steps: how often.
        rate: how many of them.
        pay: high, normal and low of `joining_gain`.

    Returns:
        float64[steps + 1].
    """
    path = [float(q)]
    for _ in range(steps):
        best = float(joining_gain(path[-1], n, k, **pay) > 0)
        path.append(path[-1] + rate * (best - path[-1]))
    return np.array(path)
