"""Elo: ratings that are updated match by match, and what they are when the order of matches does not count.

Left out: rating deviations (Glicko), and decay.
"""

from __future__ import annotations

import numpy as np

from palaestra.evaluation.ranking.matches import Matches


def elo(
    matches: Matches,
    *,
    k: float = 30.0,
    initial: float = 1000.0,
    base: float = 10.0,
    scale: float = 400.0,
    orders: int = 0,
    seed: int = 0,
) -> np.ndarray:
    """Elo ratings after all `Matches` in order, float64[n]; with `orders`, float64[orders, n] over random orders.

    After each match r_a += k w (s - e), e = 1 / (1 + base^{(r_b - r_a) / scale}), and r_b the opposite; s is the score
    of a, w the match's weight. On purpose not w s - e as in evalica, where a win of little weight costs points. Elo
    depends on the order: orders=0 takes the matches as they stand; the mean over many orders is the number to report,
    their spread what the order alone does.
    """
    if not orders:
        return _play_once(matches, k, initial, base, scale)
    order = np.random.default_rng(seed).permuted(np.tile(np.arange(len(matches)), (orders, 1)), axis=1)
    return _play(matches, order, k, initial, base, scale)


def elo_resampled(matches: Matches, resamples: int, rng: np.random.Generator, *, k: float = 30.0) -> np.ndarray:
    """Bootstrap draws of Elo ratings of `Matches`, float64[resamples, n]: clusters redrawn, in random order (`rng`)."""
    clusters = int(matches.cluster.max()) + 1
    counts = rng.multinomial(clusters, np.full(clusters, 1 / clusters), size=resamples)[:, matches.cluster]
    longest = int(counts.sum(1).max())
    order = np.full((resamples, longest), -1)  # -1: nobody plays
    for row, count in enumerate(counts):
        drawn = np.repeat(np.arange(len(matches)), count)
        order[row, : len(drawn)] = rng.permutation(drawn)
    return _play(matches, order, k, 1000.0, 10.0, 400.0)


def _play_once(matches: Matches, k: float, initial: float, base: float, scale: float) -> np.ndarray:
    """The same for one order, in plain floats: an array of one costs thirty times as much per match."""
    rating = [initial] * len(matches.names)
    columns = (x.tolist() for x in (matches.a, matches.b, matches.score, matches.weight))
    for i, j, s, w in zip(*columns, strict=True):
        e = 1 / (1 + base ** ((rating[j] - rating[i]) / scale))
        rating[i] += k * w * (s - e)
        rating[j] -= k * w * (s - e)
    return np.array(rating)


def _play(matches: Matches, order: np.ndarray, k: float, initial: float, base: float, scale: float) -> np.ndarray:
    """Ratings after the matches order[r], for all rows r at once."""
    rating = np.full((len(order), len(matches.names)), initial)
    row = np.arange(len(order))
    for now in order.T:
        i, j, s = matches.a[now], matches.b[now], matches.score[now]
        plays = k * matches.weight[now] * (now >= 0)
        e = 1 / (1 + base ** ((rating[row, j] - rating[row, i]) / scale))
        rating[row, i] += plays * (s - e)
        rating[row, j] -= plays * (s - e)
    return rating
