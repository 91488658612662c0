"""Elo-MMR: ratings of players who meet many at once in contests (Ebtekar and Liu 2021, arXiv 2101.00400).

A contest's performance of a player is where the logistic likelihoods of all wins and losses balance; the rating is
where the performances so far, each with a heavy tail, balance with a normal belief. With every contest some of the
weight of old performances goes over into the normal belief. Checked against the worked example of the reference's
bindings for Python. Left out: drift with time between contests, and contests of different weight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from palaestra.errors import InputError

MULTIPLIER = np.pi / np.sqrt(3)
"""Scale of a logistic distribution with deviation 1: tanh(MULTIPLIER · z / 2)."""
BOUNDS = (-6000.0, 9000.0)


@dataclass(frozen=True)
class Rated:
    """Data of Elo-MMR ratings after all contests, with deviations and history.

    Attributes:
        mu: rating of each player, float64[players].
        sigma: its deviation.
        history: of each contest (players int[k], mu, sigma and performance float64[k] each).
    """

    mu: np.ndarray
    sigma: np.ndarray
    history: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]


def elo_mmr(
    contests: Sequence[tuple[np.ndarray, np.ndarray]],
    players: int,
    *,
    start: tuple[float, float] = (1500.0, 350.0),
    weight: float = 0.2,
    limit: float = 80.0,
    speed: float = 1.0,
    split_ties: bool = False,
) -> Rated:
    """`Rated`: Elo-MMR ratings of so many `players` from contests, each (participants, ranks), in time order.

    Args:
        contests: of each who took part, int[k] below `players`, each once, and their ranks, number[k], 1 the best;
            equal ranks are ties.
        players: how many there are; who never took part keeps the start.
        start: rating and deviation of a newcomer.
        weight: of one contest, above 0; more moves ratings faster.
        limit: deviation that a player of many contests comes to.
        speed: how fast performances go over into the normal belief; 0 never, large at once.
        split_ties: count a tie as half a win and half a loss; otherwise as both.

    Returns:
        Ratings, with their history.

    Raises:
        InputError: a contest is empty or has a player twice, or an option is out of range.
    """
    if not (weight > 0 and limit > 0 and speed >= 0):
        raise InputError(f"elo_mmr: {weight=} and {limit=} must be above 0, {speed=} at least 0")
    mu, sigma = np.full(players, start[0]), np.full(players, start[1])
    normal_mu, normal_weight = mu.copy(), sigma**-2.0
    noise, drift = limit * np.sqrt(1 + 1 / weight), weight * limit**2
    seen = np.zeros((players, 0))  # performances of each player; weight 0: did not take part
    pull = np.zeros((players, 0))
    narrow = MULTIPLIER / noise / 2
    history = []
    for who, rank in contests:
        who, rank = np.asarray(who), np.asarray(rank, float)
        if not len(who) or len(np.unique(who)) < len(who) or len(who) != len(rank):
            raise InputError("elo_mmr: a contest needs players, each once, and a rank for each")
        spread = np.sqrt(sigma[who] ** 2 + drift)
        decay = (sigma[who] / spread) ** 2
        stays = decay**speed
        old = stays * normal_weight[who]
        moved = (1 - stays) * (normal_weight[who] + (pull[who] * narrow * 2 / MULTIPLIER**2).sum(1))
        normal_mu[who] = (old * normal_mu[who] + moved * mu[who]) / (old + moved)
        normal_weight[who] = decay * (old + moved)
        pull[who] *= (stays * decay)[:, None]
        performance = performances(mu[who], np.sqrt(spread**2 + noise**2), rank, split_ties=split_ties)
        seen, pull = (np.pad(each, ((0, 0), (0, 1))) for each in (seen, pull))
        seen[who, -1], pull[who, -1] = performance, MULTIPLIER / noise
        mu[who] = _balance(seen[who], pull[who], narrow, normal_mu[who], normal_weight[who])
        sigma[who] = (spread**-2.0 + noise**-2.0) ** -0.5
        history.append((who, mu[who].copy(), sigma[who].copy(), performance))
    return Rated(mu, sigma, history)


def performances(mu: np.ndarray, spread: np.ndarray, rank: np.ndarray, *, split_ties: bool = False) -> np.ndarray:
    """Performance of players of ratings `mu`, `spread` at ranks `rank`: rating where wins, losses balance, float64[k].

    Given ratings, their deviations and ranks.

    Args:
        mu: ratings before it, float64[k].
        spread: their deviations with the luck of a day, float64[k].
        rank: 1 the best, float64[k].
        split_ties: see `elo_mmr`.
    """
    width = MULTIPLIER / spread
    won, lost = (rank[:, None] < rank), (rank[:, None] > rank)
    tie = 1.0 if split_ties else 2.0
    factor, offset = np.where(won | lost, 1.0, tie), won * 1.0 - lost * 1.0

    def slope(x: np.ndarray) -> np.ndarray:
        z = np.tanh((x[:, None] - mu) * width / 2)
        total: np.ndarray = ((factor * z - offset) * width).sum(1)
        return total

    return _zero(slope, len(mu))


def _balance(
    seen: np.ndarray, pull: np.ndarray, narrow: float, normal_mu: np.ndarray, normal_weight: np.ndarray
) -> np.ndarray:
    """Where performances, each pulling with tanh, and the normal belief balance, float64[k]."""

    def slope(x: np.ndarray) -> np.ndarray:
        tails = (pull * np.tanh((x[:, None] - seen) * narrow)).sum(1)
        total: np.ndarray = tails + (x - normal_mu) * normal_weight
        return total

    return _zero(slope, len(seen))


def _zero(rising: Callable[[np.ndarray], np.ndarray], size: int) -> np.ndarray:
    """The zero of a rising function of each entry, by bisection inside `BOUNDS`."""
    low, high = np.full(size, BOUNDS[0]), np.full(size, BOUNDS[1])
    for _ in range(60):
        middle = (low + high) / 2
        above = rising(middle) > 0
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    found: np.ndarray = (low + high) / 2
    return found
