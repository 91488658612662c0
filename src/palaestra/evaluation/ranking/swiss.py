"""Swiss rounds over benchmarks: expected points when systems meet those who did as well so far, and the last drop out.

Left out: ratings inside the rounds. The result depends on the order of the benchmarks and on how many drop out, so
`swiss` prints Borda's count and the mean rank beside it.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import polars as pl
import scipy

from palaestra.errors import InputError
from palaestra.evaluation.ranking.voting import ballots, borda

_MOST_EXACT = 6


def swiss(
    scores: np.ndarray,
    *,
    eliminate: int | Sequence[int] = 0,
    names: Sequence[str] | None = None,
    simulations: int = 100_000,
    exact: bool = False,
    seed: int = 0,
) -> pl.DataFrame:
    """[142] Table of systems' expected points in a Swiss tournament over benchmarks (arXiv 2512.21010), from scores.

    Columns: system, expected, low, high, n, mean_rank, borda.

    scores: float64[systems, benchmarks], benchmarks in the order in which they are played. In round k those who are in
    are sorted by points, at random among equals, and neighbours meet on benchmark k: an odd one of a group meets the
    next group, the very last has a bye worth nothing. The better score wins a point, equal scores toss a coin. Then
    `eliminate` (or eliminate[k]) of the lowest group leave, at random inside it, but two always stay.

    expected: mean points over `simulations`, with the 95 % interval of that mean: it is the luck of the draw only, not
    of the scores. exact: every draw is enumerated, up to 6 systems; low = high. n: simulations (0: exact).

    Raises:
        InputError: scores are not finite numbers of at least two systems, or too many to enumerate.
    """
    scores = np.asarray(scores, float)
    if scores.ndim != 2 or len(scores) < 2 or not np.isfinite(scores).all():
        raise InputError(f"swiss: scores must be finite numbers [systems >= 2, benchmarks], not {scores.shape}")
    rounds = scores.shape[1]
    drop = [eliminate] * rounds if isinstance(eliminate, int) else list(eliminate)
    if len(drop) != rounds or min(drop, default=0) < 0:
        raise InputError(f"swiss: eliminate={eliminate} for {rounds} rounds: give one number, or one per round")
    if exact:
        expected = _enumerate(scores, drop)
        error = np.zeros(len(scores))
    else:
        expected, error = _simulate(scores, drop, simulations, np.random.default_rng(seed))
    return pl.DataFrame(
        {
            "system": list(names) if names is not None else [str(i) for i in range(len(scores))],
            "expected": expected,
            "low": expected - 1.959964 * error,
            "high": expected + 1.959964 * error,
            "n": np.full(len(scores), 0 if exact else simulations),
            "mean_rank": scipy.stats.rankdata(-scores, axis=0).mean(1),
            "borda": borda(ballots(scores.T)),
        }
    )


def failure_sensitivity(
    scores: np.ndarray,
    *,
    eliminate: Sequence[int] = (0, 1, 2, 3),
    names: Sequence[str] | None = None,
    simulations: int = 100_000,
    seed: int = 0,
) -> pl.DataFrame:
    """Table per system of `scores` [systems, benchmarks]: expected Swiss points for each T eliminated, slope over T.

    T is the number eliminated after a round.

    Columns: system, T=0, T=1, …, slope.

    Steep: one that wins where it is strong and falls early; flat: a generalist. The slope is least squares, our
    reading: the published definition was not found.
    """
    parts = [
        swiss(scores, eliminate=t, names=names, simulations=simulations, seed=seed)["expected"].alias(f"T={t}")
        for t in eliminate
    ]
    slope = np.polyfit(np.asarray(eliminate, float), np.array([part.to_numpy() for part in parts]), 1)[0]
    labels = list(names) if names is not None else [str(i) for i in range(len(scores))]
    return pl.DataFrame([pl.Series("system", labels), *parts, pl.Series("slope", slope)])


def _simulate(
    scores: np.ndarray, drop: Sequence[int], simulations: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    m = len(scores)
    points = np.zeros((simulations, m))
    left = m
    inside = np.ones((simulations, m), bool)
    row = np.arange(simulations)[:, None]
    for k, out in enumerate(drop):
        order = np.argsort(np.where(inside, -points, np.inf) + rng.random(points.shape) / 2, axis=1)[:, :left]
        a, b = order[:, 0 : left - 1 : 2], order[:, 1:left:2]
        gap = scores[a, k] - scores[b, k]
        won = np.where(gap == 0, rng.random(gap.shape) < 0.5, gap > 0)
        points[row, np.where(won, a, b)] += 1
        out = min(out, left - 2)
        if out > 0:
            last = np.argsort(np.where(inside, points, np.inf) + rng.random(points.shape) / 2, axis=1)[:, :out]
            inside[row, last] = False
            left -= out
    return points.mean(0), points.std(0, ddof=1) / np.sqrt(simulations)


State = tuple[tuple[int, ...], tuple[int, ...]]


def _enumerate(scores: np.ndarray, drop: Sequence[int]) -> np.ndarray:
    """Exact expectation: the distribution over (points of all, who is in), round by round."""
    m = len(scores)
    if m > _MOST_EXACT:
        raise InputError(f"swiss: exact=True enumerates at most {_MOST_EXACT} systems, not {m}")
    states: dict[State, float] = {((0,) * m, tuple(range(m))): 1.0}
    for k, out in enumerate(drop):
        played: dict[State, float] = defaultdict(float)
        for (points, inside), p in states.items():
            orders = _orders(points, inside, falling=True)
            for order in orders:
                for winners, chance in _outcomes(order, scores[:, k]):
                    after = list(points)
                    for winner in winners:
                        after[winner] += 1
                    played[tuple(after), inside] += p * chance / len(orders)
        states = defaultdict(float)
        for (points, inside), p in played.items():
            gone = min(out, len(inside) - 2)
            orders = _orders(points, inside, falling=False)
            for order in orders:
                states[points, tuple(sorted(order[max(gone, 0) :]))] += p / len(orders)
    return np.asarray(sum(p * np.array(points, float) for (points, _), p in states.items()))


def _orders(points: Sequence[int], inside: Sequence[int], *, falling: bool) -> list[tuple[int, ...]]:
    """All orders of those inside by points, equals in every order."""
    groups = [[i for i in inside if points[i] == p] for p in sorted({points[i] for i in inside}, reverse=falling)]
    return [sum(parts, ()) for parts in itertools.product(*(itertools.permutations(group) for group in groups))]


def _outcomes(order: Sequence[int], score: np.ndarray) -> list[tuple[tuple[int, ...], float]]:
    pairs = list(zip(order[0::2], order[1::2], strict=False))
    choices = [(a, b) if score[a] == score[b] else (a if score[a] > score[b] else b,) for a, b in pairs]
    every = list(itertools.product(*choices))
    return [(winners, 1 / len(every)) for winners in every]
