"""`Dial`: turn a pointer to a target and let go there. Near misses are many, hits are rare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

MOVES = ("down", "up", "let go")


@dataclass
class _DialState:
    place: int = 0
    steps: int = 0
    over: bool = False


@ENVS.register("native/dial")
class Dial(NativeEnv):
    """Env of a pointer on an endless line from 0: `hand` moves it by one or lets go; an end at `target` is paid 1.

    It starts at 0 and takes at most `horizon` moves.

    Reward 1 for a hit. facts: distance, of the pointer from the target as a share of the way at the start, after the
    turn; ended, whether it was the last turn.
    """

    agents: tuple[str, ...] = ("hand",)
    facts = {"distance": float, "ended": bool}

    def __init__(self, *, target: int = 8, horizon: int = 24) -> None:
        if target < 1 or horizon < 1:
            raise InputError(f"Dial: target={target} and horizon={horizon} must be at least 1")
        self.target, self.horizon = target, horizon

    def begin(self) -> tuple[str, _DialState]:
        """Start at 0."""
        return "dial", _DialState()

    def look(self) -> dict[str, Observation]:
        """Observation of the hand: the mark that the pointer is at."""
        return {} if self.state.over else {"hand": Observation(f"at {self.state.place}", choices=MOVES)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Turn by one mark, or let go; an invalid move does nothing, and at the last step it lets go."""
        state, action = self.state, chosen["hand"]
        state.place += {0: -1, 1: 1}.get(action, 0)
        state.steps += 1
        state.over = action == 2 or state.steps >= self.horizon
        distance = abs(self.target - state.place) / self.target
        info: dict[str, Any] = {"distance": distance, "ended": state.over}
        if state.over:
            info["success"] = distance == 0
        return {"hand": float(state.over and distance == 0)}, info
