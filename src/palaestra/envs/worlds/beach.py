"""`Beach`: everybody chooses a section at once, and a crowded one is worth little (the beach problem, [208])."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.exact.objectives import beach_capacity
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError


@dataclass
class _BeachState:
    over: bool = False


@ENVS.register("native/beach")
class Beach(NativeEnv):
    """`people` choose one of `sections`; one with x people on it is worth x e^(-x/ψ). Reward: that of one's own.

    facts: whole, the worth of all sections; difference, how much less that would be without this person. Everybody sees
    their own number, so that one table has a row for each.
    """

    facts = {"whole": float, "difference": float}

    def __init__(self, *, people: int = 10, sections: int = 3, psi: float = 1.0) -> None:
        if people < 1 or sections < 2 or not psi > 0:
            raise InputError(f"Beach: people={people} >= 1, sections={sections} >= 2 and {psi=} > 0 is needed")
        self.agents = tuple(f"person_{number}" for number in range(people))
        self.psi, self.choices = psi, tuple(f"section {number}" for number in range(sections))

    def begin(self) -> tuple[str, _BeachState]:
        """Always the same."""
        return "beach", _BeachState()

    def look(self) -> dict[str, Observation]:
        """Who one is."""
        if self.state.over:
            return {}
        return {agent: Observation(f"you are {agent}", choices=self.choices) for agent in self.agents}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Count; who chose none stays away and is worth nothing."""
        self.state.over = True
        there = {agent: action for agent, action in chosen.items() if isinstance(action, int)}
        crowd = np.bincount(list(there.values()), minlength=len(self.choices))
        worth, fewer = beach_capacity(crowd, self.psi), beach_capacity(crowd - 1, self.psi)
        own = {agent: float(worth[action]) for agent, action in there.items()}
        without = {agent: float(worth[action] - fewer[action]) for agent, action in there.items()}
        return own, {"whole": float(worth.sum()), "difference": without}
