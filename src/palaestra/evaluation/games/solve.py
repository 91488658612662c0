"""Solving a game: a profile, its values, regrets and gap, and their intervals where payoffs were estimated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from palaestra.errors import InputError
from palaestra.evaluation.games.game import Game, marginals
from palaestra.evaluation.games.solvers import read_solver
from palaestra.evaluation.games.tree import Tree

Bounds = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class Solution:
    """Data of a solved game: its profile, with values, regrets, exploitability and intervals.

    Attributes:
        game: what was solved.
        profile: mixtures, a joint distribution float64[S_1, …], or a behaviour policy float64[A, I] of a tree.
        value: expected payoff of each player.
        regret: gain of each player's best deviation.
        gap: exploitability of mixtures and policies (mean regret), CCE gap of a joint distribution (largest regret).
        risk: variance of an episode's return of each player; None for trees.
        gap_interval: of the gap of this very profile in the true game; None if payoffs are exact.
        mixture_intervals: low and high of each player's mixture; None if payoffs are exact.
        draws: how many games the intervals come from.
    """

    game: Game | Tree
    profile: Any
    value: np.ndarray
    regret: np.ndarray
    gap: float
    risk: np.ndarray | None = None
    gap_interval: tuple[float, float] | None = None
    mixture_intervals: tuple[Bounds, ...] | None = None
    draws: int = 0

    @property
    def correlated(self) -> bool:
        """Whether the profile is a joint distribution over cells, not a mixture per player."""
        return isinstance(self.game, Game) and isinstance(self.profile, np.ndarray)

    def mixtures(self) -> tuple[np.ndarray, ...]:
        """Each player's own mixture, of a matrix game; raises InputError for a tree."""
        if isinstance(self.game, Tree):
            raise InputError("Solution.mixtures: a tree has a policy, see Solution.table")
        return marginals(self.profile) if self.correlated else tuple(self.profile)

    def table(self) -> pl.DataFrame:
        """The solution as a DataFrame: `player, strategy, probability, low, high`; of a tree also state and action.

        Of a tree the columns are player, state, action, probability.
        """
        if isinstance(self.game, Tree):
            tree = self.game
            owner = {
                i: who
                for who, own in zip(tree.players, tree.levels, strict=True)
                for level in own
                for i in range(level.sets.start, level.sets.stop)
            }
            rows = [
                (owner[i], tree.keys[i], action, float(self.profile[a, i]))
                for i in range(len(tree.keys))
                for a, action in enumerate(tree.actions[i])
            ]
            return pl.DataFrame(rows, schema=["player", "state", "action", "probability"], orient="row")
        low, high = [[None] * size for size in self.game.shape], [[None] * size for size in self.game.shape]
        if self.mixture_intervals is not None:
            low = [bounds[0].tolist() for bounds in self.mixture_intervals]
            high = [bounds[1].tolist() for bounds in self.mixture_intervals]
        parts = [
            {"player": [who] * len(own), "strategy": list(own), "probability": x.tolist(), "low": a, "high": b}
            for who, own, x, a, b in zip(
                self.game.players, self.game.strategies, self.mixtures(), low, high, strict=True
            )
        ]
        kinds = {"low": pl.Float64, "high": pl.Float64}
        return pl.concat([pl.DataFrame(part, schema_overrides=kinds) for part in parts])


def solve(game: Game | Tree, by: str = "nash", *, draws: int = 100, level: float = 0.95, seed: int = 0) -> Solution:
    """Solves a `Game` or `Tree` by a named solver: a `Solution`, e.g. `solve(game, "risk_averse(lam=.1)")`.

    Where payoffs are estimates, `draws` games are drawn from their posterior (flat prior, Student's t per cell, the
    players' errors in a cell correlated as measured). The gap's interval is of what a deviator against the reported
    profile could gain in truth. Its upper end is that of the gap in these games. Its lower end is the best deviation's
    lower bound, with bounds that hold for all deviations at once: the best of several that only noise tells apart seems
    to gain, and so does the gap of a drawn game. A mixture's interval is what the solver says of the drawn games.

    Raises:
        InputError: the solver does not take this game; names the reason and alternatives.
    """
    solver = read_solver(by)
    profile = solver(game)
    regret = game.regret(profile)
    found = Solution(game, profile, game.value(profile), regret, 0.0)
    gap = float(regret.max() if found.correlated else regret.mean())
    if isinstance(game, Tree):
        return Solution(game, profile, found.value, regret, gap)
    risk = game.risk(profile)
    if game.covariance is None or game.count is None or draws < 1:
        return Solution(game, profile, found.value, regret, gap, risk)
    if not np.isfinite(game.covariance).all():
        at = np.argwhere(game.count < 2)[0]
        cell = ", ".join(own[k] for own, k in zip(game.strategies, at, strict=True))
        raise InputError(
            f"solve: cell ({cell}) has one episode, or episodes of one group alone; intervals need two, or ask for "
            "none with draws=0"
        )
    rng = np.random.default_rng(seed)
    gaps, gains, drawn = [], [], []
    for _ in range(draws):
        other = game.draw(rng)
        each = _gains(other, profile)
        gains.append(np.concatenate(each))
        gaps.append(_gap(each, found.correlated))
        answer = solver(other)
        drawn.append(marginals(answer) if found.correlated else answer)
    ends = [(1 - level) / 2, (1 + level) / 2]
    high = float(np.quantile(gaps, ends[1]))
    own = np.concatenate(_gains(game, profile))
    scale = np.std(gains, axis=0)
    furthest = np.max((np.array(gains) - own) / np.where(scale > 0, scale, 1.0), axis=1)
    bounds = np.split(own - np.quantile(furthest, ends[1]) * scale, np.cumsum(game.shape)[:-1])
    interval = _gap(bounds, found.correlated), high
    around = tuple((*np.quantile(np.array(each), ends, axis=0),) for each in zip(*drawn, strict=True))
    return Solution(game, profile, found.value, regret, gap, risk, interval, around, draws)


def _gains(game: Game, profile: Any) -> list[np.ndarray]:
    """What each strategy of each player gains as a deviation."""
    return [each - value for each, value in zip(game.deviations(profile), game.value(profile), strict=True)]


def _gap(gains: Sequence[np.ndarray], correlated: bool) -> float:
    best = [float(each.max()) for each in gains]
    return max(best) if correlated else float(np.mean(np.maximum(best, 0.0)))  # a mixture's own strategies gain 0
