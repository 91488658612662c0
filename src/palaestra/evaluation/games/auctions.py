"""Position auctions: which creative in which slot, what it is clicked, and what it pays.

Clicks follow one multinomial logit over all slots, so a good creative takes clicks from the others (substitution).
The paper (position auctions in AI-generated content) was read as an abstract; the solver is derived here and equals
brute force. Users who read in order and stop at a click: `palaestra.evaluation.games.cascades`.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import scipy

from palaestra.errors import InputError


class Placement(NamedTuple):
    """Data of an assignment of creatives to advertising slots, with their clicks and the welfare.

    slots: of each creative, int64[n], -1 if it is left out. clicks: float64[n]. welfare: Σ value · clicks.
    """

    slots: np.ndarray
    clicks: np.ndarray
    welfare: float


def click_rates(slots: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Click rates float64[n] by the slot of each creative (-1: none): multinomial logit W[i, slot] / (1 + Σ W).

    W are the `weights`, [n, slots]; the rate of creatives without a slot is 0.
    """
    placed = slots >= 0
    pull = np.where(placed, weights[np.arange(len(slots)), np.maximum(slots, 0)], 0.0)
    return np.asarray(pull / (1 + pull.sum()))


def assign(values: np.ndarray, weights: np.ndarray) -> Placement:
    """`Placement` of largest welfare of creatives by `values` and `weights` [n, slots] under the multinomial logit.

    Exact, by Dinkelbach's iteration.

    Welfare is a ratio, Σ v W / (1 + Σ W), so Dinkelbach's iteration finds it: with λ the welfare so far, match by
    (v - λ) W without edges that are not positive; until λ stays. Creatives worth less than λ are left out, also of free
    slots.

    Args:
        values: of a click, float64[n], >= 0.
        weights: attraction of each creative in each slot, float64[n, slots], >= 0.

    Raises:
        InputError: shapes do not fit, or a number is negative or not finite.
    """
    values, weights = checked(values, weights)
    welfare = 0.0
    while True:
        slots = np.full(len(values), -1)
        worth = (values - welfare)[:, None] * weights
        for i, j in zip(*scipy.optimize.linear_sum_assignment(np.maximum(worth, 0.0), maximize=True), strict=True):
            if worth[i, j] > 1e-12:
                slots[i] = j
        clicks = click_rates(slots, weights)
        found = float(values @ clicks)
        if found <= welfare + 1e-12:
            return Placement(slots, clicks, found)
        welfare = found


def assign_greedily(values: np.ndarray, weights: np.ndarray) -> Placement:
    """Baseline `Placement`: each slot (column of `weights`) in turn gets the free creative of most value · weight."""
    values, weights = checked(values, weights)
    slots = np.full(len(values), -1)
    for j in range(min(weights.shape)):
        worth = np.where(slots < 0, values * weights[:, j], -np.inf)
        slots[worth.argmax()] = j
    clicks = click_rates(slots, weights)
    return Placement(slots, clicks, float(values @ clicks))


def vcg_payments(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """VCG payments float64[n] for `values`, `weights` by `assign`: others' welfare without a creative minus with it."""
    values, weights = checked(values, weights)
    found = assign(values, weights)
    paid = np.zeros(len(values))
    for i in np.flatnonzero(found.slots >= 0):
        rest = np.arange(len(values)) != i
        without = assign(values[rest], weights[rest]).welfare
        paid[i] = without - (found.welfare - values[i] * found.clicks[i])
    return paid


def virtual_values(values: np.ndarray, sample: np.ndarray) -> np.ndarray:
    """Ironed virtual values (Myerson) of `values`, float64[n], for bidders distributed as in `sample`.

    The slope of the concave envelope of revenue q · v(q), v(q) the sample's upper quantile.
    In the place of values they turn the placement of largest welfare into that of largest revenue (Myerson 1981).
    Below the sample they are those of its lowest value; negative ones stand for "not shown".

    Args:
        values: float64[n].
        sample: earlier values of such bidders, float64[m].
    """
    sample = np.sort(np.asarray(sample, float))[::-1]
    if not len(sample) or not np.isfinite(sample).all():
        raise InputError("virtual_values: a sample of finite values is needed")
    quantile = np.arange(len(sample) + 1) / len(sample)
    revenue = np.append(0.0, quantile[1:] * sample)
    hull = [0]
    for k in range(1, len(quantile)):  # upper envelope from the left
        while len(hull) > 1 and _slope(quantile, revenue, hull[-2], hull[-1]) <= _slope(quantile, revenue, hull[-1], k):
            hull.pop()
        hull.append(k)
    slopes = np.array([_slope(quantile, revenue, a, b) for a, b in itertools.pairwise(hull)])
    above = np.searchsorted(-sample, -np.asarray(values, float), side="left")  # how many of the sample are larger
    piece = np.searchsorted(np.array(hull[1:]), above + 1)
    return np.asarray(slopes[np.minimum(piece, len(slopes) - 1)])


def _slope(x: np.ndarray, y: np.ndarray, a: int, b: int) -> float:
    return float((y[b] - y[a]) / (x[b] - x[a]))


def checked(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(values [n], weights [n, slots]) as float64; raises InputError for wrong shapes or numbers (weights < 0).

    Numbers that are not finite are wrong too.
    """
    values, weights = np.asarray(values, float), np.asarray(weights, float)
    if weights.ndim != 2 or values.shape != weights.shape[:1]:
        raise InputError(f"assign: values {values.shape} and weights {weights.shape}; [n] and [n, slots] are needed")
    if not (np.isfinite(values).all() and np.isfinite(weights).all() and (weights >= 0).all()):
        raise InputError("assign: values must be finite, and weights finite and >= 0")
    return values, weights
