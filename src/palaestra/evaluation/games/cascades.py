"""Position auctions for users who read in order and stop at the first click: the cascade model.

Clicks depend on the order of reading (position auctions in AI-generated content [99], arXiv 2506.03309). The paper's
abstract names an order-sensitive cascade and approximate solutions; that the seller chooses the order together with the
placement is from a summary by others. The cascade here is the usual one, and solvers and their factor are derived.
Left out: users who stop without a click.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from palaestra.errors import InputError
from palaestra.evaluation.games.auctions import Placement, assign, checked

EXACT_SLOTS = 10
"""Most slots for which `best_cascade` is meant; its time doubles with each slot."""


def cascade_rates(slots: np.ndarray, chances: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Click rates under the cascade of creatives in array `slots`, read in `order`: own chance times Π (1 - chance).

    float64[n].

    Args:
        slots: slot of each creative, int64[n], -1 for none.
        chances: probability of a click once the creative is read in a slot, float64[n, slots].
        order: creatives in the order of reading, int64[n].

    >>> cascade_rates(np.array([0, 1]), np.array([[0.5, 0.0], [0.0, 0.4]]), np.array([1, 0])).round(2)
    array([0.3, 0.4])
    """
    chance = np.where(slots >= 0, chances[np.arange(len(slots)), np.maximum(slots, 0)], 0.0)[order]
    rates = np.zeros(len(slots))
    rates[order] = chance * np.append(1.0, np.cumprod(1 - chance))[:-1]
    return rates


def by_value(values: np.ndarray) -> np.ndarray:
    """Order of reading that is best for any placement, int64[n]: indices by value, largest first, ties by index."""
    return np.argsort(-np.asarray(values, float), kind="stable")


def assign_cascade(values: np.ndarray, chances: np.ndarray) -> Placement:
    """`Placement` by `values` and `chances` [n, slots], of at least half of the largest welfare under the cascade.

    It is read in the order of `by_value`.

    - Start: the placement of `assign` with the chances as weights. Its objective t satisfies t = max Σ p (v - t) over
      matchings, and the best cascade has at most t + max Σ p (v - t) = 2t. All that is placed is worth t or more, so
      it has welfare t or more in any order of reading.
    - Then single changes are made while one raises the welfare: a creative goes to a slot, and who had it moves to the
      slot that became free, or out.

    Args:
        values: of a click, float64[n].
        chances: probability of a click once the creative is read in a slot, float64[n, slots], 0 to 1.

    Raises:
        InputError: shapes do not fit, or a chance is not in [0, 1].
    """
    values, chances = _chances(values, chances)
    found = _read(values, chances, assign(values, chances).slots)
    while True:
        changes = (_read(values, chances, slots) for slots in _changes(found.slots, chances.shape[1]))
        better = max(changes, key=_welfare, default=found)
        if better.welfare <= found.welfare + 1e-12:
            return found
        found = better


def best_cascade(values: np.ndarray, chances: np.ndarray) -> Placement:
    """`Placement` of largest welfare by `values` and `chances` [n, slots] under the cascade; exact, for few slots.

    It is read in the order of `by_value`.

    With V(S) the best welfare of the creatives read later in the slots S, a creative adds max(V(S), max over j in S of
    p v + (1 - p) V(S without j)). Time: creatives · slots · 2^slots.

    Args: as of `assign_cascade`.

    Raises:
        InputError: shapes do not fit, a chance is not in [0, 1], or there are more than `EXACT_SLOTS` slots.
    """
    values, chances = _chances(values, chances)
    count, places = chances.shape
    if places > EXACT_SLOTS:
        raise InputError(f"best_cascade: {places} slots, at most {EXACT_SLOTS}; assign_cascade has no such limit")
    order, sets = by_value(values), np.arange(2**places)
    worth, choice = np.zeros(2**places), np.full((count, 2**places), -1)
    for i in order[::-1]:
        best = worth.copy()
        for j in range(places):
            p = chances[i, j]
            with_it = np.where(sets >> j & 1, p * values[i] + (1 - p) * worth[sets & ~(1 << j)], -np.inf)
            choice[i] = np.where(with_it > best + 1e-12, j, choice[i])
            best = np.maximum(best, with_it)
        worth = best
    slots, free = np.full(count, -1), 2**places - 1
    for i in order:
        slots[i] = choice[i, free]
        free &= ~(1 << slots[i]) if slots[i] >= 0 else free
    return _read(values, chances, slots)


def cascade_payments(
    values: np.ndarray, chances: np.ndarray, solve: Callable[[np.ndarray, np.ndarray], Placement] = best_cascade
) -> np.ndarray:
    """VCG payments under the cascade for arrays `values`, `chances`: others' welfare without a bidder minus with it.

    float64[n].

    No bidder gains by another bid than its value if `solve` is exact; with an approximation that is not so.
    """
    found = solve(values, chances)
    paid = np.zeros(len(values))
    for i in np.flatnonzero(found.slots >= 0):
        rest = np.arange(len(values)) != i
        paid[i] = solve(values[rest], chances[rest]).welfare - (found.welfare - values[i] * found.clicks[i])
    return paid


def _read(values: np.ndarray, chances: np.ndarray, slots: np.ndarray) -> Placement:
    clicks = cascade_rates(slots, chances, by_value(values))
    return Placement(slots, clicks, float(values @ clicks))


def _welfare(found: Placement) -> float:
    return found.welfare


def _changes(slots: np.ndarray, places: int) -> list[np.ndarray]:
    """Placements that differ by one creative's slot, and by where the creative goes that had it."""
    found = []
    for i in range(len(slots)):
        for j in range(places):
            if slots[i] != j:
                for instead in {-1, int(slots[i])}:
                    new = np.where(slots == j, instead, slots)
                    new[i] = j
                    found.append(new)
    return found


def _chances(values: np.ndarray, chances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, chances = checked(values, chances)
    if (chances > 1).any():
        raise InputError(f"a cascade's weights are probabilities of a click, at most 1; got {float(chances.max()):g}")
    return values, chances
