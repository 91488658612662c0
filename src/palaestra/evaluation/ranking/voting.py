"""Voting rules: an order from who is preferred to whom, without a model of strength.

A tournament's results are votes as well: `margins` of wins. Left out: rules that need more than pairs and first places
(single transferable vote), and strategic questions.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from palaestra.errors import InputError, nearest
from palaestra.evaluation.ranking.nash_averaging import nash_averaging

_MOST = 16  # systems that Kemeny's dynamic programme over subsets can take


def ballots(scores: np.ndarray) -> np.ndarray:
    """Pairwise preferences float64[n, n] from scores float64[voters, n]: how many voters put the row above the column.

    Ties count half, NaN not at all.

    >>> ballots(np.array([[3.0, 1, 2], [3, 3, 0]])).tolist()
    [[0.0, 1.5, 2.0], [0.5, 0.0, 1.0], [0.0, 1.0, 0.0]]
    """
    a, b = scores[:, :, None], scores[:, None, :]
    found = (a > b).sum(0) + 0.5 * (a == b).sum(0)
    np.fill_diagonal(found, 0.0)
    return np.asarray(found, float)


def borda(preferred: np.ndarray) -> np.ndarray:
    """Borda count, float64[n], from preference counts [n, n]: how often each system is preferred; larger is better."""
    return np.asarray(preferred.sum(1))


def average_win_rate(preferred: np.ndarray) -> np.ndarray:
    """Mean over opponents of a system's share of votes, float64[n], of preference counts [n, n]; unmet ones dropped."""
    games = preferred + preferred.T
    met = games > 0
    shares = np.where(met, preferred / np.where(met, games, 1.0), 0.0)
    return np.asarray(np.where(met.any(1), shares.sum(1) / np.maximum(met.sum(1), 1), np.nan))


def copeland(preferred: np.ndarray) -> np.ndarray:
    """Copeland score, float64[n], from preference counts [n, n]: number of opponents beaten by majority, draws half."""
    margin = preferred - preferred.T
    return np.asarray((margin > 0).sum(1) + 0.5 * ((margin == 0).sum(1) - 1))


def plurality(scores: np.ndarray) -> np.ndarray:
    """Plurality votes, float64[n]: how many voters put the system first, from scores float64[voters, n]; ties share."""
    first = scores == np.nanmax(scores, axis=1, keepdims=True)
    return np.asarray((first / first.sum(1, keepdims=True)).sum(0))


def schulze(preferred: np.ndarray) -> np.ndarray:
    """Schulze score, float64[n], from preference counts [n, n]: opponents beaten by widest paths of majorities.

    Schulze 2011.
    """
    strength = widest_paths(np.where(preferred > preferred.T, preferred, 0.0))
    return np.asarray((strength > strength.T).sum(1) + 0.5 * ((strength == strength.T).sum(1) - 1))


def ranked_pairs(preferred: np.ndarray) -> np.ndarray:
    """Score by ranked pairs (Tideman 1987), float64[n], of counts [n, n]: how many each system stands above."""
    n = len(preferred)
    margin = preferred - preferred.T
    above = np.zeros((n, n), bool)
    for pair in np.argsort(-margin, axis=None, kind="stable"):
        i, j = divmod(int(pair), n)
        if margin[i, j] <= 0:
            break
        if not above[j, i]:
            above |= np.outer(above[:, i] | (np.arange(n) == i), above[j] | (np.arange(n) == j))
    return np.asarray(above.sum(1), float)


def kemeny(preferred: np.ndarray) -> np.ndarray:
    """Score by Kemeny's order, n - 1 for the first … 0 for the last, of preference counts [n, n]; exact, n <= 16."""
    n = len(preferred)
    if n > _MOST:
        raise InputError(f"kemeny: {n} systems, but the exact order is found for at most {_MOST}; use ranked_pairs")
    sets = np.arange(1 << n)
    inside = (sets[:, None] >> np.arange(n)) & 1
    gain = inside @ preferred.T  # gain[S, i]: agreement of putting i above all of S
    best, choice = np.full(1 << n, -np.inf), np.zeros(1 << n, int)
    best[0] = 0.0
    size = inside.sum(1)
    for count in range(1, n + 1):  # best order of each set of this size, by whom it puts first
        some = sets[size == count]
        without = some[:, None] ^ (1 << np.arange(n))
        value = np.where(inside[some] > 0, best[without % (1 << n)] + gain[without % (1 << n), np.arange(n)], -np.inf)
        choice[some] = value.argmax(1)
        best[some] = value.max(1)
    score, left = np.zeros(n), (1 << n) - 1
    for place in range(n - 1, -1, -1):
        first = choice[left]
        score[first] = place
        left ^= 1 << int(first)
    return score


def maximal_lottery(preferred: np.ndarray) -> np.ndarray:
    """Maximal lottery (Fishburn 1984), float64[n], of counts [n, n]: mixture that beats or ties each in expectation.

    Of several the one of largest entropy.
    """
    return np.asarray(nash_averaging(preferred - preferred.T).equilibrium[0])


def widest_paths(edges: np.ndarray) -> np.ndarray:
    """Widest paths, float64[..., n, n]: the largest, over paths from row to column, of the path's smallest edge."""
    reach = np.array(edges, float)
    for k in range(reach.shape[-1]):
        np.maximum(reach, np.minimum(reach[..., :, k, None], reach[..., None, k, :]), out=reach)
    return reach


RULES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "average_win_rate": average_win_rate,
    "borda": borda,
    "copeland": copeland,
    "schulze": schulze,
    "ranked_pairs": ranked_pairs,
    "kemeny": kemeny,
    "maximal_lottery": maximal_lottery,
}


def vote(preferred: np.ndarray, method: str) -> np.ndarray:
    """Score of each system, float64[n], by a voting rule named in `RULES`, from preference counts float64[n, n]."""
    if method not in RULES:
        raise InputError(f"vote: method={method!r}{nearest(method, RULES)}")
    return RULES[method](preferred)
