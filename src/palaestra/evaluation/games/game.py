"""Normal-form games: a payoff tensor per player, exact or estimated from play, and the regret of profiles.

A profile is one mixture per player (they choose independently), or one joint distribution over all cells (a mediator
draws a cell). Left out: payoffs that are sparse or too large for memory.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from palaestra.errors import InputError

Profile = Sequence[np.ndarray] | np.ndarray
"""Mixtures float64[S_i], one per player; or a joint distribution float64[S_1, …, S_N]."""
_ZERO = 1e-9


@dataclass(frozen=True, eq=False)
class Game:
    """Data of an N-player game in normal form: the payoff of every player for every profile of strategies.

    Attributes:
        payoffs: of each player, float64[S_1, …, S_N].
        players: names of the players.
        strategies: names of each player's strategies.
        variance: variance of one episode's return, of each player; None: payoffs are the returns themselves.
        covariance: of the errors of a cell's N payoffs, float64[S_1, …, S_N, N, N]; None: payoffs are exact.
        count: episodes of each cell, int64[S_1, …, S_N]; None: payoffs are exact.
        mirrored: of two players: whether a cell (a, b) and the cell (b, a), by the names of strategies, are the same
            episodes with the sides exchanged; all names of rows are names of columns.

    Raises:
        InputError: shapes do not fit, or a payoff is not finite; names the player and the cell.
    """

    payoffs: tuple[np.ndarray, ...]
    players: tuple[str, ...] = ()
    strategies: tuple[tuple[str, ...], ...] = ()
    variance: tuple[np.ndarray, ...] | None = None
    covariance: np.ndarray | None = None
    count: np.ndarray | None = None
    mirrored: bool = False

    def __post_init__(self) -> None:
        payoffs = tuple(np.asarray(table, float) for table in self.payoffs)
        n = len(payoffs)
        shape = payoffs[0].shape if payoffs else ()
        if not n or not payoffs[0].size:
            raise InputError("Game: there must be a payoff tensor per player, with at least one cell")
        players = tuple(self.players) or tuple(f"player_{i}" for i in range(n))
        names = tuple(map(tuple, self.strategies)) or tuple(tuple(map(str, range(size))) for size in shape)
        if len(players) != n or len(shape) != n or any(table.shape != shape for table in payoffs):
            raise InputError(
                f"Game: {n} payoff tensors of shapes {[table.shape for table in payoffs]} for {len(players)} players; "
                "each player needs one of the same shape, with one axis per player"
            )
        if tuple(map(len, names)) != shape:
            raise InputError(f"Game: payoffs have shape {shape}, but there are {tuple(map(len, names))} strategy names")
        if self.mirrored and (n != 2 or not set(names[0]) <= set(names[1])):
            raise InputError("Game: mirrored is of two players, and each name of a row is the name of a column as well")
        object.__setattr__(self, "payoffs", payoffs)
        object.__setattr__(self, "players", players)
        object.__setattr__(self, "strategies", names)
        for player, table in zip(players, payoffs, strict=True):
            bad = np.argwhere(~np.isfinite(table))
            if len(bad):
                cell = ", ".join(f"{who}={own[k]}" for who, own, k in zip(players, names, bad[0], strict=True))
                raise InputError(
                    f"Game: the payoff of {player} at ({cell}) is {table[tuple(bad[0])]}; {len(bad)} of {table.size} "
                    "cells are not finite (a cell that was never played has no payoff: play it, or leave one out)"
                )
        n_shape = (*shape, n, n)
        for what, value, expected in (
            ("variance", self.variance, None),
            ("covariance", self.covariance, n_shape),
            ("count", self.count, shape),
        ):
            if isinstance(value, np.ndarray):
                shapes, wrong = [value.shape], value.shape != expected
            else:
                shapes = [np.shape(each) for each in value or ()]
                wrong = value is not None and shapes != [shape] * n
            if wrong:
                raise InputError(f"Game: {what} has shape {shapes}; payoffs have {n} times {shape}")

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of strategies of each player."""
        return self.payoffs[0].shape

    @property
    def error(self) -> tuple[np.ndarray, ...] | None:
        """Standard error of each payoff, per player; None if the payoffs are exact."""
        if self.covariance is None:
            return None
        return tuple(np.sqrt(self.covariance[..., i, i]) for i in range(len(self.payoffs)))

    def constant_sum(self) -> float | None:
        """The sum of the players' payoffs if it is the same in every cell (to 1e-9 of the largest), else None."""
        total = np.sum(self.payoffs, axis=0)
        scale = max(float(np.abs(self.payoffs).max()), 1e-300)
        return float(total.mean()) if np.ptp(total) <= _ZERO * scale * len(self.payoffs) else None

    def joint(self, profile: Profile) -> np.ndarray:
        """Probability of each cell under a profile of mixtures or a joint distribution, float64[S_1, …, S_N].

        Raises:
            InputError: shapes do not fit, or something is not a distribution.
        """
        if isinstance(profile, np.ndarray) and profile.shape == self.shape:
            return _distribution(profile, "the joint distribution")
        if len(profile) != len(self.shape) or any(
            np.shape(x) != (s,) for x, s in zip(profile, self.shape, strict=True)
        ):
            shapes = [np.shape(x) for x in profile]
            raise InputError(f"profile: mixtures of shapes {shapes} for a game of {self.shape} strategies")
        mixtures = [_distribution(x, f"the mixture of {who}") for x, who in zip(profile, self.players, strict=True)]
        return np.asarray(reduce(np.multiply.outer, mixtures))

    def value(self, profile: Profile) -> np.ndarray:
        """Expected payoff of each player, float64[N]."""
        joint = self.joint(profile)
        return np.array([(joint * table).sum() for table in self.payoffs])

    def deviations(self, profile: Profile) -> tuple[np.ndarray, ...]:
        """Payoff of each strategy of each player while the others keep to the profile: float64[S_i] per player."""
        joint = self.joint(profile)
        letters = string.ascii_letters[: joint.ndim]
        found = []
        for i, table in enumerate(self.payoffs):
            others = letters[:i] + letters[i + 1 :]
            found.append(np.einsum(f"{letters},{others}->{letters[i]}", table, joint.sum(axis=i)))
        return tuple(found)

    def against(self, player: int, mixtures: Sequence[np.ndarray]) -> np.ndarray:
        """Payoff of each strategy of one player against the others' mixtures, float64[S_player]; nothing is checked."""
        table = np.moveaxis(self.payoffs[player], player, 0)
        for other in range(len(mixtures) - 1, -1, -1):
            if other != player:
                table = table @ mixtures[other]
        return np.asarray(table)

    def regret(self, profile: Profile) -> np.ndarray:
        """Gain of each player's best deviation, float64[N]; at least 0 for mixtures, of any sign for joint ones."""
        best = np.array([each.max() for each in self.deviations(profile)])
        return np.asarray(best - self.value(profile))

    def exploitability(self, profile: Profile) -> float:
        """Mean gain of the best deviations (NashConv / N); 0 exactly at a Nash equilibrium, for mixtures."""
        return float(self.regret(profile).mean())

    def cce_gap(self, profiles: Sequence[Profile], weights: Sequence[float] | None = None) -> float:
        """Coarse correlated equilibrium gap (largest gain) of a mixture of whole profiles, one drawn for each episode.

        max_i [max_a E_{b~μ} u_i(a, b_{-i}) - E_{b~μ} u_i(b)], μ = Σ_t w_t ⊗_i π_i^t (Foster et al. 2023). The index t
        is drawn once, so opponents' choices are correlated; averaging each player's mixtures is another profile. Of one
        profile it is the largest regret, the Nash gap.

        Args:
            profiles: at least one.
            weights: of the profiles; None: equal.
        """
        if not len(profiles):
            raise InputError("cce_gap: at least one profile is needed")
        weight = np.ones(len(profiles)) if weights is None else np.asarray(weights, float)
        if weight.shape != (len(profiles),) or (weight < 0).any() or not weight.sum() > 0:
            raise InputError(f"cce_gap: {len(profiles)} profiles need as many weights >= 0, not all 0")
        mixed = sum(w * self.joint(profile) for w, profile in zip(weight / weight.sum(), profiles, strict=True))
        return float(self.regret(np.asarray(mixed)).max())

    def risk(self, profile: Profile) -> np.ndarray:
        """Variance of one episode's return of each player, float64[N]: between the cells, and within them if known."""
        joint, value = self.joint(profile), self.value(profile)
        between = [(joint * table**2).sum() for table in self.payoffs]
        within = [(joint * table).sum() for table in self.variance or ()] or np.zeros(len(value))
        return np.asarray(np.maximum(np.array(between) - value**2, 0.0) + np.array(within))

    def draw(self, rng: np.random.Generator) -> Game:
        """A new `Game` with payoffs drawn from their posterior: the estimate plus Student's t errors.

        Errors of the players in one cell keep their correlation, so an estimate of a zero-sum game stays zero-sum, and
        two cells that mirror each other have the same errors, with the sides exchanged.
        """
        if self.covariance is None or self.count is None:
            return self
        values, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
        freedom = np.maximum(self.count - 1, 1)
        t = rng.standard_normal(self.covariance.shape[:-1]) / np.sqrt(rng.chisquare(freedom) / freedom)[..., None]
        noise = (root @ t[..., None])[..., 0]
        if self.mirrored:
            at = [self.strategies[1].index(name) for name in self.strategies[0]]
            low, high = np.triu_indices(len(at), 1)
            square = noise[:, at]
            square[high, low] = square[low, high, ::-1]
            noise[:, at] = square
        payoffs = tuple(table + noise[..., i] for i, table in enumerate(self.payoffs))
        return Game(payoffs, self.players, self.strategies, self.variance, mirrored=self.mirrored)


def zero_sum(payoffs: np.ndarray, **names: Any) -> Game:
    """A two-player zero-sum `Game` from the row player's payoff matrix."""
    payoffs = np.asarray(payoffs, float)
    if payoffs.ndim != 2:
        raise InputError(f"zero_sum: a matrix [rows, columns] is needed, not the shape {payoffs.shape}")
    return Game((payoffs, -payoffs), **names)


def marginals(joint: np.ndarray) -> tuple[np.ndarray, ...]:
    """Each player's own mixture float64[S_i], as a tuple, from a joint distribution float64[S_1, …, S_N]."""
    axes = range(joint.ndim)
    return tuple(np.asarray(joint.sum(axis=tuple(a for a in axes if a != i))) for i in axes)


def _distribution(x: np.ndarray, what: str) -> np.ndarray:
    x = np.asarray(x, float)
    if not np.isfinite(x).all() or (x < -1e-9).any() or abs(x.sum() - 1) > 1e-6:
        raise InputError(f"profile: {what} is no distribution: it must be >= 0 and add up to 1, not {x.sum():g}")
    return x
