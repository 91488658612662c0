"""Arithmetic of a commons that is harvested in rounds: rationing, regrowth, and what counts as over-use.

The rules are those of GovSim's code (arXiv 2404.16698), with the inverse scenario of its reproduction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

Ration = Literal["random", "proportional"]


def threshold(pool: float, agents: int, *, inverse: bool = False, grows: float = 50.0) -> int:
    """Sustainable harvest per agent of n `agents` as int, ⌊⌊pool / 2⌋ / n⌋, after which the stock regrows to its size.

    inverse: units that everybody must remove, grows / n.

    >>> threshold(100, 5), threshold(47, 5), threshold(100, 5, inverse=True)
    (10, 4, 10)
    """
    return int(grows // agents) if inverse else int(int(pool / 2) // agents)


def ration(
    wishes: Sequence[float] | np.ndarray, pool: float, method: Ration = "random", rng: np.random.Generator | None = None
) -> np.ndarray:
    """Units that each agent gets, float64[agents]: its wish, or a ration if the wishes exceed the pool.

    Args:
        wishes: quantity that each wants, whole where `method` is "random".
        pool: what there is.
        method: "random": unit by unit, each to one drawn from those who still want one, all alike, however much they
            want. "proportional": in proportion, in fractions.
        rng: for "random".

    >>> ration([10, 10, 10, 10, 18], 42.0, "proportional").round(3).tolist()
    [7.241, 7.241, 7.241, 7.241, 13.034]
    """
    want = np.asarray(wishes, float)
    if want.sum() <= pool:
        return want
    if method == "proportional":
        return np.asarray(want * pool / want.sum())
    rng, got = rng or np.random.default_rng(0), np.zeros(len(want))
    for _ in range(int(pool)):
        wanting = np.flatnonzero(got < want)
        got[wanting[rng.integers(len(wanting))]] += 1
    return got


def regrown(
    pool: float, *, growth: float = 2.0, cap: float = 100.0, inverse: bool = False, grows: float = 50.0
) -> float:
    """Pool after regrowth: min(cap, growth · pool), or with `inverse` min(cap, pool + grows) of a public bad.

    >>> regrown(40.0), regrown(70.0), regrown(30.0, inverse=True)
    (80.0, 100.0, 80.0)
    """
    return min(cap, pool + grows if inverse else growth * pool)


def collapsed(pool: float, *, least: float = 5.0, most: float = 95.0, inverse: bool = False) -> bool:
    """Whether a pool after the harvest ends the game: below `least`, or with `inverse` above `most`."""
    return pool > most if inverse else pool < least
