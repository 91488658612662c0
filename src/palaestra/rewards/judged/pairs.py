"""Pairs: which of two episodes is better, by rules that need no weights, and a reward learned from that.

A comparator takes the factors of two episodes and says 1, 0 or -1. `lexicographic_preference` is one, a judge's
verdicts are another. What it says feeds `bradley_terry`. `lexicographic` is the same order as a signal inside a group.
The learner here is linear in the factors; networks are in `palaestra.learning.reward_models`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from palaestra.algebra.kernels import Evaluation, kernel
from palaestra.algebra.keys import is_first, joined
from palaestra.algebra.samples import exceeds
from palaestra.algebra.signals import Keys, Signal, SignalLike, as_signal, evaluate, mean, register
from palaestra.algebra.turns import Turns
from palaestra.errors import ExpressionError, InputError
from palaestra.rewards.judged.linear import fit_differences

Numbers = tuple[float, ...]


def lexicographic_preference(
    first: np.ndarray, second: np.ndarray, *, signs: Numbers | None = None, margins: Numbers | None = None
) -> np.ndarray:
    """Preference of each pair by ordered factors, int64[pairs]: 1 first side better, -1 second, 0 neither.

    HERON's comparator [200] (arXiv 2309.02632): the first factor decides by any difference; a later one only if the
    difference exceeds its margin, else the next is asked.

    Args:
        first: float64[pairs, factors], the most important factor first.
        second: float64[pairs, factors], of the other side.
        signs: 1 if more of a factor is better, -1 if less is. Default: 1.
        margins: per factor, that of the first is not used (HERON: a multiple of the factor's standard deviation).

    >>> lexicographic_preference(np.array([[1.0, 4.0]]), np.array([[1.0, 5.0]]), signs=(1, -1), margins=(0, 0.5))
    array([1])
    """
    number = first.shape[1]
    one, other = (side * np.ones(number) * (1.0 if signs is None else np.asarray(signs)) for side in (first, second))
    limit = np.zeros(number) if margins is None else np.asarray(margins, float).copy()
    if limit.shape != (number,):
        raise InputError(f"lexicographic_preference: {len(limit)} margins for {number} factors")
    limit[:1] = 0.0
    found = exceeds(one, other + limit).astype(np.int64) - exceeds(other, one + limit)
    return np.asarray(found[np.arange(len(found)), np.abs(found).argmax(axis=1)])


class DecidedPairs(NamedTuple):
    """Data of compared episodes: features float64[episodes, factors]; winner, loser int64[pairs] index its rows."""

    features: np.ndarray
    winner: np.ndarray
    loser: np.ndarray


def pairs(
    turns: Turns,
    *factors: SignalLike,
    compare: Callable[[np.ndarray, np.ndarray], np.ndarray] = lexicographic_preference,
    over: Keys = "group",
    unit: Keys = "episode",
) -> DecidedPairs:
    """`DecidedPairs` of episodes of `Turns` within a key, by `compare` of each one's mean `factors` (signals); no ties.

    factors: each reduced to its mean over the unit; a unit with a missing factor takes no part. compare: factors of
    both, float64[pairs, factors], to 1, 0 or -1 per pair.

    Raises:
        InputError: no factor is given.
    """
    if not factors:
        raise InputError("pairs: no factors; give at least one signal")
    columns = evaluate(turns, is_first(over=unit), *(mean(factor, over=unit) for factor in factors))
    features = np.stack([np.asarray(column, float) for column in columns[1:]], axis=-1)
    rows = np.flatnonzero((np.asarray(columns[0]) == 1) & ~np.isnan(features).any(axis=1))
    features = features[rows]
    first, second = within(Evaluation(turns).codes(joined(over)).ids[rows])
    label = np.asarray(compare(features[first], features[second]))
    return DecidedPairs(
        features,
        np.where(label > 0, first, second)[label != 0],
        np.where(label > 0, second, first)[label != 0],
    )


def within(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Indices (first, second) of every unordered pair of positions with equal ids, two int arrays."""
    order = np.argsort(ids, kind="stable")
    sizes = np.bincount(ids) if len(ids) else np.zeros(0, np.int64)
    ends = np.repeat(np.cumsum(sizes), sizes)
    later = ends - np.arange(len(ids)) - 1
    first = np.repeat(np.arange(len(ids)), later)
    offset = np.arange(len(first)) - np.repeat(np.cumsum(later) - later, later)
    return order[first], order[first + 1 + offset]


def bradley_terry(found: DecidedPairs, *, ridge: float = 1e-3) -> np.ndarray:
    """Bradley-Terry weights w of a `DecidedPairs`, float64[factors], by ridge logistic regression.

    They minimise mean -log σ(w·(x_winner - x_loser)) + ridge/2 · |w|².

    Bring factors to one scale first (`standardise`), and the weights do not depend on their units. The reward is
    Σ w·factor, `reward_of`.

    Raises:
        InputError: there is no decided pair.
    """
    if not len(found.winner):
        raise InputError("bradley_terry: no pair was decided; loosen the margins or compare more episodes")
    return fit_differences(found.features[found.winner] - found.features[found.loser], ridge=ridge)


def reward_of(weights: np.ndarray, *factors: SignalLike) -> Signal:
    """Signal: a learned linear reward, Σ weight · factor, from an array of weights and as many factors, in order."""
    terms = [float(weight) * as_signal(factor) for weight, factor in zip(weights, factors, strict=True)]
    return sum(terms[1:], terms[0])


# -- the order as a signal --------------------------------------------------------------------------------------------


@register()
def lexicographic(
    first: SignalLike,
    *others: SignalLike,
    signs: Numbers | None = None,
    margin: float = 1.0,
    over: Keys = "group",
    unit: Keys = "episode",
) -> Signal:
    """Signal: share of the key's other episodes that are worse by the factors, in order, less share better; 0 if alone.

    [200] HERON without a learner: `lexicographic_preference` with margins of `margin` standard deviations, over the
    batch, of each factor's mean over the episode. Work grows with the square of a key's episodes.

    >>> turns = Turns({"group": [0] * 3, "episode": [0, 1, 2], "success": [1, 1, 0], "cost": [5.0, 1.0, 0.0]})
    >>> lexicographic("success", "cost", signs=(1, -1), margin=0.5).evaluate(turns)
    array([ 0.,  1., -1.])
    """
    factors = (first, *others)
    given = (1.0,) * len(factors) if signs is None else tuple(map(float, signs))
    if len(given) != len(factors):
        raise ExpressionError(f"lexicographic: {len(given)} signs for {len(factors)} factors; give a sign per factor")
    means = [mean(factor, over=unit) for factor in factors]
    node = hierarchy(*means, signs=given, margin=margin, over=over, where=is_first(over=unit))
    return mean(node, over=unit)


@register()
def hierarchy(*factors: SignalLike, signs: Numbers, margin: float, over: Keys, where: SignalLike) -> Signal:
    """Signal: raw node behind `lexicographic`: compares the rows in `where` within the key; missing elsewhere."""
    plain = tuple(map(float, signs))
    return Signal(
        "hierarchy",
        *map(as_signal, factors),
        over=joined(over),
        signs=plain,
        margin=float(margin),
        where=as_signal(where),
    )


@kernel("hierarchy", range="batch")
def _hierarchy(evaluation: Evaluation, node: Signal) -> np.ndarray:
    features = np.stack([np.asarray(evaluation(child), float) for child in node.inputs], axis=-1)
    keep = np.asarray(evaluation(node.options["where"]), float) == 1
    rows = np.flatnonzero(keep & ~np.isnan(features).any(axis=1))
    x, batch, ids = features[rows], evaluation.codes(()).ids[rows], evaluation.codes(node.options["over"]).ids[rows]
    result = np.full(len(features), np.nan)
    score = np.zeros(len(rows))
    if len(rows):
        number = np.bincount(batch)[:, None]
        means = np.stack([np.bincount(batch, column) for column in x.T], axis=-1) / np.maximum(number, 1)
        spread = np.stack([np.bincount(batch, column) for column in ((x - means[batch]) ** 2).T], axis=-1)
        unit = np.sqrt(spread / np.maximum(number, 1))[batch]
        unit = np.where(unit > 0, unit, 1.0)  # in deviations of its own batch, the margin is one number
        first, second = within(ids)
        margins = (node.options["margin"],) * x.shape[1]
        label = lexicographic_preference(
            x[first] / unit[first], x[second] / unit[second], signs=node.options["signs"], margins=margins
        )
        balance = np.bincount(first, label, len(rows)) - np.bincount(second, label, len(rows))
        score = balance / np.maximum(np.bincount(ids)[ids] - 1, 1)
    result[rows] = score
    return result
