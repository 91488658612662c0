"""`Gems`: collectors choose among gems that grow back; two who choose the same one are in each other's way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError


@dataclass
class _GemsState:
    there: frozenset[int]
    steps: int = 0
    total: float = 0.0
    clashes: int = 0


@ENVS.register("native/gems")
class Gems(NativeEnv):
    """Coordination env: all choose gems each step; alone at a present one pays its worth, a shared one costs `clash`.

    `collectors` agents choose one of several gems in each of `horizon` steps.

    Who alone chooses a gem that is there is paid its worth, and the gem is missing in the next step only. Those who
    choose the same gem are paid -clash each, and it stays; a gem that is not there pays 0. So what is good to choose
    depends on what the others choose, and on what will be there in the next step. At the start each gem is there with
    chance ½. A success is an episode without a clash. facts: clashes and total, the sum of all rewards, both so far.

    Args:
        pays: worth of each gem. clash: what it costs to choose what another one chooses.

    Raises:
        InputError: fewer than one collector or step, or fewer than two gems.
    """

    facts = {"clashes": int, "total": float}

    def __init__(
        self, *, collectors: int = 2, pays: Sequence[float] = (1.0, 1.0, 2.0), clash: float = 1.0, horizon: int = 6
    ) -> None:
        if collectors < 1 or len(pays) < 2 or horizon < 1:
            raise InputError(
                f"Gems: collectors={collectors} and horizon={horizon} must be at least 1, and {len(pays)} gems two"
            )
        self.pays, self.clash, self.horizon = tuple(map(float, pays)), float(clash), horizon
        self.agents: tuple[str, ...] = tuple(f"collector_{number}" for number in range(collectors))
        self.choices = tuple(f"gem {number}" for number in range(len(pays)))

    @staticmethod
    def text(there: frozenset[int]) -> str:
        """Observation text for a set of gems that are there."""
        return "there: " + (" ".join(map(str, sorted(there))) or "none")

    def outcome(self, there: frozenset[int], went: Sequence[int | None]) -> tuple[list[float], frozenset[int]]:
        """Rewards of the collectors, and the set of gems that are there next; None: no gem was chosen."""
        rewards, taken = [], set()
        for gem in went:
            alone = went.count(gem) == 1
            rewards.append(0.0 if gem is None else -self.clash if not alone else self.pays[gem] * (gem in there))
            if gem is not None and alone and gem in there:
                taken.add(gem)
        return rewards, frozenset(range(len(self.pays))) - taken

    def begin(self) -> tuple[str, _GemsState]:
        """Draw which gems are there."""
        there = frozenset(np.flatnonzero(self.rng.random(len(self.pays)) < 0.5).tolist())
        return f"gems {self.text(there)}", _GemsState(there)

    def look(self) -> dict[str, Observation]:
        """All collectors see which gems are there."""
        if self.state.steps == self.horizon:
            return {}
        return {agent: Observation(self.text(self.state.there), choices=self.choices) for agent in self.agents}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Take all choices of a step and pay."""
        state = self.state
        went = [chosen[agent] if isinstance(chosen[agent], int) else None for agent in self.agents]
        rewards, state.there = self.outcome(state.there, went)
        state.steps += 1
        state.total += sum(rewards)
        state.clashes += sum(went.count(gem) > 1 for gem in set(went) - {None})
        info: dict[str, Any] = {"clashes": state.clashes, "total": state.total}
        if state.steps == self.horizon:
            info["success"] = state.clashes == 0
        return dict(zip(self.agents, rewards, strict=True)), info
