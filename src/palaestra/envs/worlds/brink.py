"""`Brink`: near the goal, wait or try; a try may fail, and ends it. A reward for progress must not pay for waiting."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from palaestra.envs.protocol import Action, Observation, StepResult
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

MOVES = ("wait", "try")


@dataclass
class _BrinkState:
    steps: int = 0
    over: bool = False


@ENVS.register("native/brink")
class Brink(NativeEnv):
    """Optimal stopping env: `arm` waits or tries; a try ends the episode and pays 1 with chance `luck`, whenever made.

    Who only waits is cut off after them.

    facts: progress before the step, always `near`.
    """

    agents: tuple[str, ...] = ("arm",)
    facts = {"progress": float}

    def __init__(self, *, near: float = 0.8, luck: float = 0.5, horizon: int = 20) -> None:
        if not (0 <= near <= 1 and 0 <= luck <= 1 and horizon >= 1):
            raise InputError(f"Brink: {near=} and {luck=} must be in [0, 1], {horizon=} at least 1")
        self.near, self.luck, self.horizon = near, luck, horizon

    def begin(self) -> tuple[str, _BrinkState]:
        """Start; every episode is the same."""
        return "brink", _BrinkState()

    def look(self) -> dict[str, Observation]:
        """Observation of the arm: the same text in every step."""
        state = self.state
        return {} if state.over or state.steps >= self.horizon else {"arm": Observation("nearly there", choices=MOVES)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Wait, or try; an invalid move waits."""
        state = self.state
        state.steps, state.over = state.steps + 1, chosen["arm"] == 1
        won = state.over and bool(self.rng.random() < self.luck)
        ended = {"success": won} if state.over or state.steps >= self.horizon else {}
        return ({"arm": 1.0} if won else {}), {"progress": self.near, **ended}

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the action; an episode that ran out of steps is truncated, not terminated."""
        result = super().step(actions)
        cut = result.terminated and not self.state.over
        return dataclasses.replace(result, terminated=result.terminated and not cut, truncated=cut)
