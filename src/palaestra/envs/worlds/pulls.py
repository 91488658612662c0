"""`Pulls`: a known arm and one that nobody knows; greed alone explores where the arm comes again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

ARMS = ("known", "unknown")


@dataclass
class _PullsState:
    theta: float
    pulled: int = 0
    tried: int = 0
    won: int = 0


@ENVS.register("native/pulls")
class Pulls(NativeEnv):
    """Two-armed bandit env: each of `pulls` turns `puller` pulls the known or the unknown arm; paid 1 per win.

    `pulls` pulls; the known arm wins with the chance `known`, the other with one drawn uniformly.

    The game of [214] (arXiv 2508.01287): each pull is an episode of the hidden task. recurring: the unknown arm is the
    same for all pulls, else it is drawn anew each time. memory: what was tried and won stands in the observation.

    facts: known, whether the known arm was pulled.
    """

    agents: tuple[str, ...] = ("puller",)
    facts = {"known": bool}

    def __init__(self, *, pulls: int = 20, known: float = 0.55, recurring: bool = True, memory: bool = True) -> None:
        if pulls < 1 or not 0 <= known <= 1:
            raise InputError(f"Pulls: pulls={pulls} must be at least 1, known={known} in [0, 1]")
        self.pulls, self.known, self.recurring, self.memory = pulls, float(known), recurring, memory

    def begin(self) -> tuple[str, _PullsState]:
        """Draw the unknown arm's chance."""
        return f"arm {int(self.rng.integers(2**31))}", _PullsState(float(self.rng.random()))

    def look(self) -> dict[str, Observation]:
        """Observation of the puller: pulls and wins of the unknown arm, if the env remembers them."""
        state = self.state
        if state.pulled == self.pulls:
            return {}
        return {"puller": self.seen(state.tried, state.won)}

    def seen(self, tried: int, won: int) -> Observation:
        """The observation after `tried` pulls of the unknown arm, `won` of which won; not how many are left."""
        text = f"unknown: {won} of {tried}" if self.memory else "pull"
        return Observation(text, choices=ARMS)

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Pull an arm; an invalid choice is the known arm."""
        state, tries = self.state, chosen["puller"] == 1
        pays = bool(self.rng.random() < (state.theta if tries else self.known))
        state.pulled, state.tried, state.won = state.pulled + 1, state.tried + tries, state.won + (tries and pays)
        if not self.recurring:
            state.theta = float(self.rng.random())
        info: dict[str, Any] = {"known": not tries}
        if state.pulled == self.pulls:
            info["success"] = state.tried > 0
        return {"puller": float(pays)}, info

    def worth(self, tries: Callable[[int, int, int], float]) -> float:
        """Exact expected return of a policy, a function (pulled, tried, won) to its chance of the unknown arm."""

        @lru_cache(None)
        def value(pulled: int, tried: int, won: int) -> float:
            if pulled == self.pulls:
                return 0.0
            share, held, unknown = float(tries(pulled, tried, won)), 0.0, 0.0
            if share < 1:
                held = self.known + value(pulled + 1, tried, won)
            if share > 0:
                chance = (won + 1) / (tried + 2) if self.recurring else 0.5
                better, worse = value(pulled + 1, tried + 1, won + 1), value(pulled + 1, tried + 1, won)
                unknown = chance * (1 + better) + (1 - chance) * worse
            return share * unknown + (1 - share) * held

        return value(0, 0, 0)

    def best(self, horizon: int | None = None) -> Callable[[int, int, int], bool]:
        """The optimal policy over the next `horizon` pulls (default: all), as a function; ties go to the known arm."""

        @lru_cache(None)
        def value(left: int, tried: int, won: int) -> tuple[float, float]:
            if not left:
                return 0.0, 0.0
            if not self.memory:
                tried = won = 0
            chance = (won + 1) / (tried + 2) if self.recurring else 0.5
            held = self.known + max(value(left - 1, tried, won))
            better, worse = max(value(left - 1, tried + 1, won + 1)), max(value(left - 1, tried + 1, won))
            return held, chance * (1 + better) + (1 - chance) * worse

        def tries(pulled: int, tried: int, won: int) -> bool:
            left = self.pulls - pulled if horizon is None else min(horizon, self.pulls - pulled)
            held, tried_on = value(left, tried, won)
            return tried_on > held

        return tries
