"""Adaptive matching: play next what is not settled yet, and stop when the response graph is (arXiv 1909.09849).

Payoffs are numbers in [0, 1] of K players over joint strategies. Left out: payoffs that are not bounded, and
correlated sampling of several profiles at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy

from palaestra.errors import InputError, nearest
from palaestra.evaluation.intervals import RESAMPLES
from palaestra.evaluation.ranking.alpha_rank import alpha_rank

Interval = Literal["hoeffding", "clopper_pearson"]
Method = Literal["uniform_exhaustive", "uniform", "valence", "count", "in_turn"]
METHODS = ("uniform_exhaustive", "uniform", "valence", "count", "in_turn")
Play = Callable[[tuple[int, ...], np.random.Generator], np.ndarray]
"""A profile -> payoffs of all players, float64[K] in [0, 1]."""


def _at(profile: tuple[int, ...]) -> Any:
    """Index of all players' payoffs in one profile."""
    return (slice(None), *profile)


@dataclass
class PayoffEstimate:
    """Running payoff estimates of strategy profiles with confidence bounds: sums [K, S_1, …] and counts of plays.

    delta: chance that one interval misses, each (OpenSpiel's per_payoff_confidence) unless split over all payoffs. Both
    intervals are conservative: they miss less often than that.
    """

    total: np.ndarray
    n: np.ndarray
    interval: Interval = "clopper_pearson"
    delta: float = 0.01
    slack: float = 0.0

    @classmethod
    def empty(
        cls,
        strategies: tuple[int, ...],
        *,
        interval: Interval = "clopper_pearson",
        delta: float = 0.01,
        split: bool = False,
        slack: float = 0.0,
    ) -> PayoffEstimate:
        """A new `PayoffEstimate` without any plays, for players with these numbers of strategies.

        strategies: how many each player has. split: `delta` is for all payoffs together. slack: what may overlap.
        """
        if interval not in ("hoeffding", "clopper_pearson"):
            raise InputError(f"interval={interval!r}{nearest(str(interval), ('hoeffding', 'clopper_pearson'))}")
        players = len(strategies)
        delta = delta / (players * math.prod(strategies)) if split else delta
        return cls(np.zeros((players, *strategies)), np.zeros(strategies, int), interval, delta, slack)

    def add(self, profile: tuple[int, ...], payoffs: np.ndarray) -> None:
        """Add the payoffs of one play of a profile; they must be in [0, 1]."""
        payoffs = np.asarray(payoffs, float)
        if payoffs.shape != self.total.shape[:1] or not ((payoffs >= 0) & (payoffs <= 1)).all():
            raise InputError(f"payoffs of profile {profile} must be {len(self.total)} numbers in [0, 1], not {payoffs}")
        self.total[_at(profile)] += payoffs
        self.n[profile] += 1

    @property
    def mean(self) -> np.ndarray:
        """Mean payoffs so far, float64[K, S_1, …]; NaN where nothing was played."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.total / self.n)

    def bounds(self, profile: tuple[int, ...] | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper confidence bounds of the payoffs, of all profiles or of one."""
        where: Any = _at(profile) if profile is not None else ...
        n, total = self.n[profile] if profile is not None else self.n, self.total[where]
        if self.interval == "hoeffding":
            with np.errstate(divide="ignore", invalid="ignore"):
                margin = np.sqrt(math.log(2 / self.delta) / (2 * n))
                low, high = total / n - margin, total / n + margin
        else:
            share = total / np.maximum(n, 1)
            half = self.delta / 2
            with np.errstate(invalid="ignore"):
                low = np.where(share < 1e-6, 0.0, scipy.special.betaincinv(total, n - total + 1, half))
                high = np.where(share > 1 - 1e-6, 1.0, scipy.special.betaincinv(total + 1, n - total, 1 - half))
        unseen = n == 0
        return np.where(unseen, -np.inf, low + self.slack), np.where(unseen, np.inf, high - self.slack)


@dataclass(frozen=True)
class Settled:
    """Result of `response_graph_ucb`: payoff estimates, number of plays, and the order of the edges.

    plays: how many; edges: pairs of profiles that differ in one player's strategy, settled: those whose order is sure.
    order: per edge (profile, profile, player): the player prefers the second; open ones by their means.
    """

    estimate: PayoffEstimate
    plays: int
    edges: int
    settled: int
    order: tuple[tuple[tuple[int, ...], tuple[int, ...], int], ...]


class ResponseGraph:
    """Response graph between strategy profiles: its edges and which of them are settled, for adaptive matching."""

    def __init__(self, strategies: tuple[int, ...]) -> None:
        self.profiles = [tuple(map(int, p)) for p in np.ndindex(*strategies)]
        self.edges = [
            (v, (*v[:k], s, *v[k + 1 :]), k)
            for v in self.profiles
            for k in range(len(strategies))
            for s in range(v[k] + 1, strategies[k])
        ]
        self.open = dict.fromkeys(self.edges)
        self.touching: dict[tuple[int, ...], list[tuple[tuple[int, ...], tuple[int, ...], int]]] = {}
        for edge in self.edges:
            for v in edge[:2]:
                self.touching.setdefault(v, []).append(edge)
        self.valence = np.array([len(self.touching[v]) for v in self.profiles])
        self.number = {v: i for i, v in enumerate(self.profiles)}
        self.known: dict[tuple[int, ...], tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def settle(self, estimate: PayoffEstimate, profile: tuple[int, ...]) -> None:
        """Mark the edges of a profile as settled whose payoff intervals no longer overlap."""
        mine = [edge for edge in self.touching.get(profile, ()) if edge in self.open]
        if not mine:
            return
        self.known[profile] = self._known(estimate, profile)
        for edge in mine:
            one, other, k = edge
            for v in (one, other):
                if v not in self.known:
                    self.known[v] = self._known(estimate, v)
            (mean, low, high), (mean_other, low_other, high_other) = self.known[one], self.known[other]
            apart = high_other[k] < low[k] if mean[k] > mean_other[k] else high[k] < low_other[k]
            if apart:
                del self.open[edge]
                for v in (one, other):
                    self.valence[self.number[v]] -= 1

    @staticmethod
    def _known(estimate: PayoffEstimate, profile: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean, lower and upper bound of each player's payoff."""
        mean = estimate.total[_at(profile)] / max(int(estimate.n[profile]), 1)
        return (mean, *estimate.bounds(profile))


def next_match(
    graph: ResponseGraph, estimate: PayoffEstimate, rng: np.random.Generator, method: Method = "uniform_exhaustive"
) -> tuple[int, ...] | None:
    """Profile (tuple) to play next of a `ResponseGraph` and `PayoffEstimate`, by `method` and `rng`; None: all settled.

    uniform_exhaustive: stay on one edge until it is settled. uniform: an end of any open edge. valence: with
    probability ∝ (open edges)². count: the least played with an open edge. in_turn: the least played of all, settled or
    not: equal shares, to compare with.
    """
    if method not in METHODS:
        raise InputError(f"next_match: method={method!r}{nearest(str(method), METHODS)}")
    if not graph.open:
        return None
    if method in ("count", "in_turn"):
        counts = np.array([estimate.n[v] for v in graph.profiles])
        asked = (graph.valence > 0) | (method == "in_turn")
        return graph.profiles[int(np.argmin(np.where(asked, counts, np.iinfo(int).max)))]
    if method == "valence":
        p = graph.valence.astype(float) ** 2
        return graph.profiles[int(rng.choice(len(p), p=p / p.sum()))]
    edges = list(graph.open) if method == "uniform" else [next(iter(graph.open))]
    one, other, _ = edges[int(rng.integers(len(edges)))]
    return one if rng.integers(2) == 0 else other


def response_graph_ucb(
    play: Play,
    strategies: tuple[int, ...],
    *,
    method: Method = "uniform_exhaustive",
    interval: Interval = "clopper_pearson",
    delta: float = 0.01,
    split: bool = False,
    slack: float = 0.0,
    most: int = 50_000,
    seed: int = 0,
) -> Settled:
    """[106] `Settled`: calls function `play` on each profile of `strategies`, then on `next_match` until edges settle.

    It ends when all edges are settled, or after `most` plays.

    An edge is settled when the upper bound of the worse end is below the lower bound of the better one. The defaults
    are OpenSpiel's, but for the interval: Clopper-Pearson needs a third to two thirds fewer plays than Hoeffding when
    payoffs are 0 or 1.
    """
    rng = np.random.default_rng(seed)
    estimate = PayoffEstimate.empty(strategies, interval=interval, delta=delta, split=split, slack=slack)
    graph = ResponseGraph(strategies)
    if method == "uniform_exhaustive":
        graph.open = dict.fromkeys(graph.edges[i] for i in rng.permutation(len(graph.edges)))
    for profile in graph.profiles:
        estimate.add(profile, play(profile, rng))
    for profile in graph.profiles:
        graph.settle(estimate, profile)
    plays = len(graph.profiles)
    while plays < most and (chosen := next_match(graph, estimate, rng, method)) is not None:
        estimate.add(chosen, play(chosen, rng))
        graph.settle(estimate, chosen)
        plays += 1
    mean = estimate.mean
    order = tuple((v, w, k) if mean[(k, *w)] >= mean[(k, *v)] else (w, v, k) for v, w, k in graph.edges)
    return Settled(estimate, plays, len(graph.edges), len(graph.edges) - len(graph.open), order)


def plays_needed(gap: float, strategies: tuple[int, ...], *, delta: float = 0.05, payoff_range: float = 1.0) -> int:
    """Plays of *each* profile so that all edges are right with chance 1 - delta, by `gap` and `strategies` a player.

    ⌈2 R² / Δ² · ln(2 |S| K / δ)⌉ with R the payoff range. strategies: how many each player has.

    gap: the smallest difference Δ along an edge; |S| profiles, K players; by Hoeffding and a union bound.
    """
    payoffs = 2 * math.prod(strategies) * len(strategies)
    return math.ceil(2 * payoff_range**2 / gap**2 * math.log(payoffs / delta))


def alpha_rank_draws(estimate: PayoffEstimate, *, resamples: int = RESAMPLES, seed: int = 0) -> np.ndarray:
    """float64[resamples, S_1, …]: alpha-Rank of payoffs drawn from Beta posteriors of a `PayoffEstimate`.

    For approximate intervals.

    Payoffs are taken for successes in n plays; a flat prior.
    """
    rng = np.random.default_rng(seed)
    drawn = rng.beta(estimate.total + 1, estimate.n - estimate.total + 1, size=(resamples, *estimate.total.shape))
    return np.array([alpha_rank(list(payoffs)) for payoffs in drawn])
