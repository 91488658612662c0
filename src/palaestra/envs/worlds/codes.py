"""`CodesEnv`: a new code in every episode, shown sign by sign; copying it leads to its end.

Nothing is paid on the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError


@dataclass
class _CodesState:
    code: tuple[int, ...]
    depth: int = 0
    steps: int = 0


@ENVS.register("native/codes")
class CodesEnv(NativeEnv):
    """Env of exact sequences: the right sign goes one step deeper, a wrong one stays; a finished code pays `pays`.

    The player sees the depth and the sign that is wanted; a code has `length` signs.

    Episodes share no path, but they share depths. facts: depth, after the step.
    """

    agents: tuple[str, ...] = ("player",)
    facts = {"depth": int}

    def __init__(self, *, length: int = 4, signs: int = 5, horizon: int = 12, pays: float = 0.0) -> None:
        if length < 1 or signs < 2 or horizon < length:
            raise InputError(f"Codes: {length=} >= 1, {signs=} >= 2, {horizon=} at least the length")
        self.length, self.horizon, self.pays = length, horizon, float(pays)
        self.choices = tuple(f"sign {number}" for number in range(signs))

    def begin(self) -> tuple[str, _CodesState]:
        """Start an episode with a drawn code."""
        code = self.rng.integers(len(self.choices), size=self.length).tolist()
        return f"code {'-'.join(map(str, code))}", _CodesState(tuple(code))

    def look(self) -> dict[str, Observation]:
        """Observation of the player: the depth, and the sign that is right next."""
        state = self.state
        if state.depth == self.length or state.steps >= self.horizon:
            return {}
        return {"player": Observation(f"depth {state.depth}, sign {state.code[state.depth]}", choices=self.choices)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Go one step deeper if the sign is right, else stay."""
        state = self.state
        state.depth += chosen["player"] == state.code[state.depth]
        state.steps += 1
        info: dict[str, Any] = {"depth": state.depth}
        ended = state.depth == self.length
        if ended or state.steps >= self.horizon:
            info["success"] = ended
        return ({"player": self.pays} if ended else {}), info
