"""Sparse coarse correlated equilibria of finite Markov games: the gap of a mixture of few product policies.

Independent learners of k rounds leave such a mixture: its index is drawn once an episode. A deviator who remembers the
past learns the index, so the best deviation is no Markov policy. `HARDNESS` is the limit that the source proves.
Left out: the source's reduction, and games that are only known from samples.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from palaestra.errors import InputError

Policies = Sequence[np.ndarray]
"""Markov policy of each player, float64[H, S, A_i]."""
HARDNESS = (
    "A small gap cannot be promised: for independent learners in general-sum Markov games it is PPAD-hard to compute a "
    "mixture of few product policies with a small gap, and without the model it takes a number of samples exponential "
    "in the number of players (Foster, Golowich and Kakade 2023)."
)
_MOST = 200_000


@dataclass(frozen=True, eq=False)
class MarkovGame:
    """Data of a finite Markov game of N players over H steps.

    Attributes:
        rewards: float64[N, S, A_1, …, A_N].
        transitions: float64[S, A_1, …, A_N, S].
        start: float64[S].
        horizon: H.

    Raises:
        InputError: shapes do not fit, numbers are not finite, or probabilities do not add up to 1.
    """

    rewards: np.ndarray
    transitions: np.ndarray
    start: np.ndarray
    horizon: int

    def __post_init__(self) -> None:
        rewards, transitions, start = (np.asarray(x, float) for x in (self.rewards, self.transitions, self.start))
        n, states = len(rewards), len(start)
        if rewards.ndim != n + 2 or rewards.shape[1] != states or transitions.shape != (*rewards.shape[1:], states):
            raise InputError(
                f"MarkovGame: rewards {rewards.shape}, transitions {transitions.shape} and start {start.shape} do not "
                "fit: [N, S, A_1 … A_N], [S, A_1 … A_N, S] and [S] are needed"
            )
        if not all(np.isfinite(x).all() for x in (rewards, transitions, start)):
            raise InputError("MarkovGame: rewards, transitions and start must be finite numbers")
        for what, x in (("transitions", transitions), ("start", start)):
            if (x < 0).any() or not np.allclose(x.sum(axis=-1), 1, atol=1e-6):
                raise InputError(f"MarkovGame: {what} must be probabilities that add up to 1")
        if self.horizon < 1:
            raise InputError(f"MarkovGame: horizon {self.horizon} must be at least 1")
        for name, x in (("rewards", rewards), ("transitions", transitions), ("start", start)):
            object.__setattr__(self, name, x)

    @property
    def actions(self) -> tuple[int, ...]:
        """Number of actions of each player."""
        return self.rewards.shape[2:]

    def check(self, profiles: Sequence[Policies]) -> list[list[np.ndarray]]:
        """The profiles as arrays; raises InputError for a wrong shape or what is no distribution.

        Raises:
            InputError: a policy has another shape, or no probabilities; names profile and player.
        """
        found = [[np.asarray(policy, float) for policy in profile] for profile in profiles]
        for t, profile in enumerate(found):
            if len(profile) != len(self.rewards):
                raise InputError(f"profile {t}: {len(profile)} policies for {len(self.rewards)} players")
            for i, policy in enumerate(profile):
                wanted = (self.horizon, len(self.start), self.actions[i])
                if policy.shape != wanted or (policy < 0).any() or not np.allclose(policy.sum(-1), 1, atol=1e-6):
                    shown = f"profile {t}, player {i}: a policy of shape {policy.shape}"
                    raise InputError(f"{shown}; probabilities {wanted} that add up to 1 are needed")
        if not found:
            raise InputError("at least one profile is needed")
        return found


def cce_gap(
    game: MarkovGame,
    profiles: Sequence[Policies],
    weights: Sequence[float] | None = None,
    deviations: Literal["history", "markov"] = "history",
) -> tuple[float, np.ndarray]:
    """(gap, gains float64[N]): coarse correlated equilibrium gap of the mixture of policy `profiles` in a `MarkovGame`.

    max_i [max_{π'} E_t V_i(π', π_{-i}^t) - E_t V_i(π^t)], the index t drawn once for each episode. "history": the
    deviation sees states and actions of all, so it carries the belief over t (exact). "markov": it sees the step and
    the state alone (exact, over all deterministic ones). Of one profile both are the Nash gap.

    Args:
        game: the Markov game.
        profiles: k product policies.
        weights: of the profiles; None: equal.
        deviations: what a deviator may remember.

    Raises:
        InputError: shapes do not fit, or there are too many Markov deviations or beliefs to go through.
    """
    if deviations not in ("history", "markov"):
        raise InputError(f"cce_gap: deviations={deviations!r} must be 'history' or 'markov'")
    played = game.check(profiles)
    weight = np.ones(len(played)) if weights is None else np.asarray(weights, float)
    if weight.shape != (len(played),) or (weight < 0).any() or not weight.sum() > 0:
        raise InputError(f"cce_gap: {len(played)} profiles need as many weights >= 0, not all 0")
    weight = weight / weight.sum()
    best = _history if deviations == "history" else _markov
    gains = []
    for i in range(len(game.rewards)):
        own = sum(w * _value(game, profile, i) for w, profile in zip(weight, played, strict=True))
        gains.append(best(game, played, weight, i) - own)
    return float(np.max(gains)), np.array(gains, float)


def _others(game: MarkovGame, profile: list[np.ndarray], player: int, step: int, state: int) -> np.ndarray:
    """Joint distribution of the others' actions, flat."""
    joint = np.ones(1)
    for j, policy in enumerate(profile):
        if j != player:
            joint = np.multiply.outer(joint, policy[step, state]).ravel()
    return joint


def _tables(game: MarkovGame, player: int) -> tuple[np.ndarray, np.ndarray]:
    """Rewards float64[S, A_i, others] and transitions float64[S, A_i, others, S] with the others' actions flat."""
    states, own = len(game.start), game.actions[player]
    reward = np.moveaxis(game.rewards[player], player + 1, 1).reshape(states, own, -1)
    move = np.moveaxis(game.transitions, player + 1, 1).reshape(states, own, -1, states)
    return reward, move


def _value(game: MarkovGame, profile: list[np.ndarray], player: int) -> float:
    reward, move = _tables(game, player)
    value = np.zeros(len(game.start))
    for step in reversed(range(game.horizon)):
        ahead = reward + move @ value
        value = np.array(
            [
                profile[player][step, s] @ ahead[s] @ _others(game, profile, player, step, s)
                for s in range(len(game.start))
            ]
        )
    return float(game.start @ value)


def _history(game: MarkovGame, played: list[list[np.ndarray]], weight: np.ndarray, player: int) -> float:
    """Best deviation that carries unnormalised beliefs w_t ∝ weight_t · chance of what the others did under t."""
    reward, move = _tables(game, player)
    known: dict[Any, float] = {}

    def value(step: int, state: int, belief: np.ndarray) -> float:
        if step == game.horizon or belief.sum() <= 0:
            return 0.0
        key = (step, state, tuple(np.round(belief / belief.sum(), 12)))
        if key not in known:
            if len(known) >= _MOST:
                raise InputError(f"cce_gap: more than {_MOST} beliefs; take fewer profiles or steps")
            share = belief / belief.sum()
            likely = share[:, None] * np.array([_others(game, profile, player, step, state) for profile in played])
            total = (reward[state] * likely.sum(axis=0)).sum(axis=1)
            for a, b in itertools.product(range(reward.shape[1]), range(reward.shape[2])):
                if likely[:, b].sum() > 0:
                    for s in np.flatnonzero(move[state, a, b]):
                        total[a] += move[state, a, b, s] * value(step + 1, int(s), likely[:, b])
            known[key] = float(total.max())
        return known[key] * float(belief.sum())

    return float(sum(p * value(0, s, weight) for s, p in enumerate(game.start) if p > 0))


def _markov(game: MarkovGame, played: list[list[np.ndarray]], weight: np.ndarray, player: int) -> float:
    """Best deterministic policy of step and state against the mixture; randomising does not help, by linearity."""
    states, own = len(game.start), game.actions[player]
    if own ** (states * game.horizon) > _MOST:
        raise InputError(
            f"cce_gap: {own}^{states * game.horizon} Markov deviations are too many to go through; at most {_MOST}"
        )
    best = -math.inf
    for choice in itertools.product(range(own), repeat=states * game.horizon):
        policy = np.eye(own)[np.array(choice).reshape(game.horizon, states)]
        deviated = ([*profile[:player], policy, *profile[player + 1 :]] for profile in played)
        best = max(best, sum(w * _value(game, each, player) for w, each in zip(weight, deviated, strict=True)))
    return best
