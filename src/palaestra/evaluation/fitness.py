"""Fitness of members of a population over many tasks: percentiles of normalised scores, compared by Pareto dominance.

A mean can be raised by tasks that are easy already; low percentiles cannot. Left out: Nash normalisation of scores
between several players.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palaestra.errors import InputError

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5)
"""Percentiles of XLand's fitness."""


def normalised(scores: Any, best: Any, worst: Any = 0.0) -> np.ndarray:
    """Scores divided by the best known score of each task, float64[..., tasks].

    Where that best is not above 0, the place between the worst known score and the best, from 0 to 1; 0 where these
    are equal. XLand's scores are never below 0.

    >>> normalised([[1.0, 2.0, 0.0]], [2.0, 2.0, 0.0]).tolist()
    [[0.5, 1.0, 0.0]]
    >>> normalised([[-4.0], [-3.0], [-2.0]], [-2.0], [-4.0]).tolist()
    [[0.0], [0.5], [1.0]]
    """
    top = np.asarray(best, float)
    least = np.where(top > 0, 0.0, np.asarray(worst, float))
    found: np.ndarray = np.divide(scores - least, top - least, out=np.zeros(np.shape(scores)), where=top > least)
    return found


def percentile_vector(scores: Any, levels: Sequence[float] = LEVELS) -> np.ndarray:
    """Percentiles over tasks at levels in [0, 1]: float64[..., levels] of float64[..., tasks], by linear interpolation.

    XLand's fitness of an agent (arXiv 2107.12808), with the 10th to 50th percentile.

    >>> percentile_vector([0.1, 0.2, 0.5, 0.6, 0.9]).round(2).tolist()
    [0.14, 0.18, 0.26, 0.38, 0.5]

    Raises:
        InputError: there are no tasks, or a level is outside [0, 1].
    """
    values = np.asarray(scores, float)
    if not values.size or not levels or not all(0 <= level <= 1 for level in levels):
        raise InputError(f"percentile_vector: {values.shape} scores, levels={tuple(levels)} in [0, 1]; both needed")
    return np.moveaxis(np.quantile(values, levels, axis=-1), 0, -1)


def dominates(first: Any, second: Any) -> np.ndarray:
    """Pareto dominance: whether no number of `first` is smaller and one is larger, bool[...] of float64[..., n].

    >>> bool(dominates([1, 3], [1, 2])), bool(dominates([0, 9], [1, 2]))
    (True, False)
    """
    a, b = np.asarray(first, float), np.asarray(second, float)
    return np.asarray((a >= b).all(-1) & (a > b).any(-1))


def participation(scores: Any) -> np.ndarray:
    """Share of tasks with a score other than 0, float64[...] of float64[..., tasks]; a measure of total failures.

    >>> float(participation([0.0, 0.2, 0.9, 0.0]))
    0.5
    """
    return np.asarray((np.asarray(scores, float) != 0).mean(-1))


def best_of(fitness: np.ndarray) -> int:
    """Index of the best member in fitness float64[members, levels]: the highest mean among the Pareto-optimal rows."""
    beaten = dominates(fitness[None], fitness[:, None]).any(1)
    return int(np.where(beaten, -np.inf, fitness.mean(1)).argmax())


def exploited(fitness: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """int64[members]: parent of each in a PBT step by array `fitness`, a random other that dominates, else itself.

    >>> exploited(np.array([[0.2, 0.5], [0.1, 0.9], [0.1, 0.5]]), np.random.default_rng(0)).tolist()
    [0, 1, 1]
    """
    own = np.arange(len(fitness))
    if len(fitness) < 2:
        return own
    other = (own + rng.integers(1, len(fitness), size=len(fitness))) % len(fitness)
    return np.where(dominates(fitness[other], fitness), other, own)
