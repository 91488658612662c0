"""Choosing among options that come one after the other: is the order a bias, and when is it best to stop?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy

from palaestra.errors import InputError


class PositionTest(NamedTuple):
    """Result of `choice_position_test`: counts by position (int64[options]), Pearson's χ² and its p-value."""

    counts: np.ndarray
    chi2: float
    p: float


def choice_position_test(chosen: Sequence[int] | np.ndarray, options: int) -> PositionTest:
    """χ² test for position bias: `PositionTest` of positions `chosen`, int from 1 to `options`, against equal chances.

    >>> test = choice_position_test([1, 1, 1, 1, 1, 1, 1, 1, 2, 3], options=3)
    >>> test.counts.tolist(), round(test.chi2, 2), round(test.p, 3)
    ([8, 1, 1], 9.8, 0.007)

    Raises:
        InputError: a position is not between 1 and `options`, or there are none.
    """
    ranks = np.asarray(chosen)
    if options < 2 or not np.isin(ranks, range(1, options + 1)).all() or not ranks.size:
        raise InputError(
            f"choice_position_test: positions must be whole, between 1 and options={options} (at least 2), and there "
            "must be some"
        )
    counts = np.bincount(ranks.astype(np.int64), minlength=options + 1)[1:]
    found = scipy.stats.chisquare(counts)
    return PositionTest(counts, float(found.statistic), float(found.pvalue))


def stopping_value(utilities: Sequence[float], discount: float, options: int) -> float:
    """Optimal expected value of stopping, float: at most `options` draws from `utilities`, with recall and discount.

    V_k(m) = max(m, δ E[V_{k+1}(max(m, u))]), V_n(m) = m; nothing is worth 0. With δ = 1 it is E[max of all, 0].

    >>> stopping_value([0.0, 1.0], 1.0, options=2), stopping_value([0.0, 1.0], 0.5, options=2)
    (0.75, 0.625)

    Raises:
        InputError: no utilities, or one that is not finite; a discount outside [0, 1]; fewer than one option.
    """
    if not (len(utilities) and np.isfinite(utilities).all() and 0 <= discount <= 1 and options >= 1):
        raise InputError(
            f"stopping_value: need utilities that are finite, discount={discount} in [0, 1], options={options} >= 1"
        )
    draws = np.maximum(np.sort(np.asarray(utilities, float)), 0)
    value = best = np.concatenate([[0.0], draws])  # of having `best` when all have been seen
    for left in range(options):
        later = np.array([value[1:][draws > m].sum() + value[i] * (draws <= m).sum() for i, m in enumerate(best)])
        wait = later / len(draws)
        value = np.maximum(best, discount * wait) if left < options - 1 else wait
    return float(value[0])
