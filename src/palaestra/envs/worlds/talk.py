"""`Talk`: a few turns, each with one right thing to say. What is judged turn by turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

SAYINGS = ("greet", "ask", "look up", "confirm", "thank", "shrug")


@dataclass
class _TalkState:
    steps: int = 0
    right: int = 0


@ENVS.register("native/talk")
class Talk(NativeEnv):
    """`turns` turns; in turn k the k-th of six sayings is right. Reward: the share that was, at the end.

    facts: fits, whether the turn's saying was right. Success: all were.
    """

    agents: tuple[str, ...] = ("clerk",)
    facts = {"fits": bool}

    def __init__(self, *, turns: int = 4) -> None:
        if not 1 <= turns <= len(SAYINGS):
            raise InputError(f"Talk: {turns=} from 1 to {len(SAYINGS)}")
        self.turns = turns

    def begin(self) -> tuple[str, _TalkState]:
        """From the beginning."""
        return "talk", _TalkState()

    def look(self) -> dict[str, Observation]:
        """Which turn it is."""
        if self.state.steps >= self.turns:
            return {}
        return {
            "clerk": Observation(f"turn {self.state.steps + 1}: time to {SAYINGS[self.state.steps]}", choices=SAYINGS)
        }

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Say it."""
        state = self.state
        fits = chosen["clerk"] == state.steps
        state.steps, state.right = state.steps + 1, state.right + fits
        if state.steps < self.turns:
            return {}, {"fits": fits}
        return {"clerk": state.right / self.turns}, {"fits": fits, "success": state.right == self.turns}
