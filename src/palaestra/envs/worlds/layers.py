"""`LayersEnv`: ways through layers of places, some of the last of which are goals. Where single steps are judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError


@dataclass
class _LayersState:
    place: int
    step: int = 0


@ENVS.register("native/layers")
class LayersEnv(NativeEnv):
    """Layered-graph env: `walker` sees its place and picks an edge in each of `steps` layers; paid 1 in a goal.

    A share `goals` of the last layer's places are goals.

    Where each of the `actions` leads from each of the `places` of a layer is drawn from `draw`, the same in every
    process; an episode begins at any place of the first layer.
    """

    agents: tuple[str, ...] = ("walker",)

    def __init__(
        self, *, steps: int = 6, places: int = 12, actions: int = 4, goals: float = 0.25, draw: int = 0
    ) -> None:
        if steps < 1 or places < 2 or actions < 2 or not 0 < goals < 1:
            raise InputError(f"Layers: {steps=} at least 1, {places=} and {actions=} at least 2, {goals=} in (0, 1)")
        rng = np.random.default_rng(draw)
        self.leads = rng.integers(places, size=(steps, places, actions))
        self.goal = np.isin(np.arange(places), rng.permutation(places)[: max(1, round(goals * places))])
        self.choices = tuple(f"way {number}" for number in range(actions))

    def worth(self, policy: np.ndarray | None = None) -> np.ndarray:
        """Exact action values Q of a policy (default: uniform), float64[steps, places, actions]."""
        steps, _, actions = self.leads.shape
        play = np.full(self.leads.shape, 1 / actions) if policy is None else policy
        q, ahead = np.zeros(self.leads.shape), self.goal.astype(float)
        for step in range(steps - 1, -1, -1):
            q[step] = ahead[self.leads[step]]
            ahead = (play[step] * q[step]).sum(axis=-1)
        return q

    def begin(self) -> tuple[str, _LayersState]:
        """Draw a place of the first layer."""
        place = int(self.rng.integers(len(self.goal)))
        return f"from {place}", _LayersState(place)

    def look(self) -> dict[str, Observation]:
        """Observation of the walker: the step and the place."""
        if self.state.step == len(self.leads):
            return {}
        return {"walker": Observation(f"step {self.state.step}, place {self.state.place}", choices=self.choices)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Follow an edge to the next layer; an invalid choice takes the first one."""
        way = chosen["walker"] if isinstance(chosen["walker"], int) else 0
        self.state.place = int(self.leads[self.state.step, self.state.place, way])
        self.state.step += 1
        if self.state.step < len(self.leads):
            return {}, {}
        there = bool(self.goal[self.state.place])
        return {"walker": float(there)}, {"success": there}
