"""`Beach`: everybody chooses a section at once, and a crowded one is worth little (the beach problem, [208])."""

from __future__ import annotations

from collections.abc import Sequence
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
    """Congestion game: `people` choose a section at once, paid its capacity x e^(-x/ψ) with x people on it.

    There are two objectives: the capacity x e^(-x/ψ) of a section, and how mixed it is, the share of the type of which
    it has fewer. The reward is the first, or `weights` of both.

    facts: capacity and mixture, of one's own section; whole, the worth of all sections; difference, how much less that
    would be without this person. Everybody sees their own number, so that one table has a row for each.

    Args:
        people: how many. sections: how many. psi: ψ. first: share of people of the first type, those with the lowest
            numbers. weights: of capacity and mixture, in everything that is paid or told.

    Raises:
        InputError: an option is out of range.
    """

    facts = {"capacity": float, "mixture": float, "whole": float, "difference": float}

    def __init__(
        self,
        *,
        people: int = 10,
        sections: int = 3,
        psi: float = 1.0,
        first: float = 0.3,
        weights: Sequence[float] = (1.0, 0.0),
    ) -> None:
        if people < 1 or sections < 2 or not psi > 0:
            raise InputError(f"Beach: people={people} >= 1, sections={sections} >= 2 and {psi=} > 0 is needed")
        if not 0 <= first <= 1 or len(weights) != 2:
            raise InputError(f"Beach: first={first} from 0 to 1 and two weights are needed, found {list(weights)}")
        self.agents = tuple(f"person_{number}" for number in range(people))
        self.psi, self.choices = psi, tuple(f"section {number}" for number in range(sections))
        self.weights = np.array(weights, float)
        self.types = (np.arange(people) >= round(first * people)).astype(int)

    def begin(self) -> tuple[str, _BeachState]:
        """Start; every episode is the same."""
        return "beach", _BeachState()

    def look(self) -> dict[str, Observation]:
        """Observations by agent: each one sees its own name only; empty once the episode is over."""
        if self.state.over:
            return {}
        return {agent: Observation(f"you are {agent}", choices=self.choices) for agent in self.agents}

    def vectors(self, counts: np.ndarray) -> np.ndarray:
        """Capacity and mixture of each section, float64[sections, 2], from counts of people by type."""
        crowd = counts.sum(1)
        mixture = counts.min(1) / np.maximum(crowd, 1)
        return np.stack([beach_capacity(crowd, self.psi), mixture], axis=1)

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Count the people and pay; an invalid choice stays away and is paid nothing."""
        self.state.over = True
        there = {agent: action for agent, action in chosen.items() if isinstance(action, int)}
        types = dict(zip(self.agents, self.types.tolist(), strict=True))
        counts = np.zeros((len(self.choices), 2), int)
        for agent, action in there.items():
            counts[action, types[agent]] += 1
        vectors = self.vectors(counts)
        worth = vectors @ self.weights
        without = {}
        for agent, action in there.items():
            fewer = counts.copy()
            fewer[action, types[agent]] -= 1
            without[agent] = float(worth[action] - self.vectors(fewer)[action] @ self.weights)
        told = {
            name: {agent: float(vectors[action, at]) for agent, action in there.items()}
            for at, name in enumerate(("capacity", "mixture"))
        }
        own = {agent: float(worth[action]) for agent, action in there.items()}
        return own, {**told, "whole": float(worth.sum()), "difference": without}
