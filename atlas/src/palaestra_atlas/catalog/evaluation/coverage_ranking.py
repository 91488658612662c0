"""Studies of coverage: scores and ranks of four systems, whether there is an order, and bounds of adaptive matching."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from palaestra.evaluation import ranking as rk
from palaestra.evaluation.ranking.alpha_rank import alpha_rank
from palaestra_atlas.catalog.evaluation.coverage import Rng, fresh, held, study

STRENGTH = np.array([0.6, 0.2, -0.2, -0.6])
GAMES = 24
_PAIR = np.triu_indices(4, 1)
_BEATS = 1 / (1 + np.exp(STRENGTH[_PAIR[1]] - STRENGTH[_PAIR[0]]))
_SHARES = 1 / (1 + np.exp(STRENGTH - STRENGTH[:, None]))


def games(rng: Rng, beats: np.ndarray) -> rk.Matches:
    """24 games for each pair of four systems in random order, `beats` the chance that the first wins."""
    pair = rng.permutation(np.repeat(np.arange(len(beats)), GAMES))
    a, b = (side[pair] for side in _PAIR)
    score = (rng.random(len(a)) < beats[pair]).astype(float)
    return rk.Matches(tuple("abcd"), a, b, score, np.ones(len(a)), np.arange(len(a)))


@lru_cache
def _ranking_truths() -> dict[str, np.ndarray]:
    """Scores of the true win shares; Elo's are the mean over many data sets."""
    rng = np.random.default_rng(0)
    return {
        "bradley_terry": 1000 + 400 / math.log(10) * STRENGTH,
        "average_win_rate": (_SHARES.sum(1) - 0.5) / 3,
        "copeland": np.arange(3.0, -1, -1),
        "alpha_rank": alpha_rank(_SHARES),
        "elo": np.mean([rk.elo(games(rng, _BEATS)) for _ in range(2000)], axis=0),
    }


@study
def ranking(rng: Rng) -> dict[str, Any]:
    """Four systems .4 apart in log strength."""
    played = games(rng, _BEATS)
    found: dict[str, Any] = {}
    for method, truth in _ranking_truths().items():
        ranked = rk.rank(
            played, method, resamples=200 if method == "bradley_terry" else 100, seed=fresh(rng)
        ).table.sort("system")
        found[f"coverage_{method}"] = held(ranked["low"], ranked["high"], truth)
        if method == "bradley_terry":
            found["coverage_rank"] = held(ranked["rank_low"], ranked["rank_high"], np.arange(1, 5))
    won = rk.win_table(played)
    found["coverage_win_share"] = held(won["low"], won["high"], _SHARES[~np.eye(4, dtype=bool)])
    return found


@study
def order(rng: Rng) -> dict[str, Any]:
    """Four equals; and a cycle of three, each beating the next with .75, with a fourth that equals all."""
    equal = rk.transitivity(games(rng, np.full(6, 0.5)).wins(), resamples=200, seed=fresh(rng))
    cyclic = rk.transitivity(
        games(rng, np.array([0.75, 0.25, 0.5, 0.75, 0.5, 0.5])).wins(), resamples=200, seed=fresh(rng)
    )
    return {f"{kind}_{name}": getattr(test, f"{name}_p") <= 0.05
            for kind, test in (("type1", equal), ("power", cyclic)) for name in ("cycle", "fit")}  # fmt: skip


@study
def bounds(rng: Rng) -> dict[str, Any]:
    """Bounds of payoffs after 30 plays with chance .8, delta .05; and of expected points in a Swiss tournament."""
    found: dict[str, Any] = {}
    total = rng.binomial(30, 0.8, (1, 4)).astype(float)
    for kind in ("clopper_pearson", "hoeffding"):
        estimate = rk.PayoffEstimate(total, np.full(4, 30), kind, delta=0.05)
        found[f"coverage_{kind}"] = held(*estimate.bounds(), 0.8)
    points = rk.swiss(SCORES, simulations=400, seed=fresh(rng))
    return found | {"coverage_swiss": held(points["low"], points["high"], _points())}


SCORES = np.array([[3.0, 1, 2], [2, 3, 2], [1, 2, 1], [0, 0, 3]])


@lru_cache
def _points() -> np.ndarray:
    return rk.swiss(SCORES, exact=True)["expected"].to_numpy()
