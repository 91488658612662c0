"""`GradedTaps`: the tasks of `Taps` among tasks that cannot be done and tasks that only luck solves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen
from palaestra.envs.worlds.taps import Taps, _TapsState
from palaestra.errors import InputError


@dataclass
class _GradedState(_TapsState):
    kind: str = "plain"
    salt: int = 0
    """Draws the coin of a lucky task, with its taps."""
    taps: tuple[int, ...] = ()


@ENVS.register("native/graded_taps")
class GradedTaps(Taps):
    """Env `native/taps` with a share `dead` of unsolvable tasks and a share `lucky` that chance solves.

    In a lucky task every tap is right but the last, of which a coin says so that is thrown anew for each task and each
    sequence of taps, so that nothing is learned from it that helps elsewhere. What is seen is the screen alone, which
    is the same in all tasks, so tables share it. Tasks of all difficulties, good and bad, which a curriculum must tell
    apart. facts: right, share: as there; kind: plain, dead or lucky; length, the task's taps.
    """

    facts = {"right": bool, "share": float, "kind": str, "length": int}

    def __init__(
        self,
        *,
        longest: int = 12,
        buttons: int = 6,
        dead: float = 0.2,
        lucky: float = 0.3,
        draw: int = 0,
    ) -> None:
        super().__init__(longest=longest, buttons=buttons, draw=draw)
        if not (dead >= 0 and lucky >= 0 and dead + lucky < 1):
            raise InputError(f"GradedTaps: dead={dead} and lucky={lucky} must be at least 0, and below 1 together")
        self.dead, self.lucky = dead, lucky

    def begin(self) -> tuple[str, _GradedState]:
        """Draw the task's kind and length."""
        drawn, length = self.rng.random(), int(self.rng.integers(1, self.longest + 1))
        kind = "dead" if drawn < self.dead else "lucky" if drawn < self.dead + self.lucky else "plain"
        return f"task of {length}", _GradedState(length, length, kind=kind, salt=int(self.rng.integers(2**32)))

    def look(self) -> dict[str, Observation]:
        """Observation of the user agent: the screen's number; not the task, so all tasks look alike."""
        if self.state.over:
            return {}
        screen = np.eye(self.longest, dtype=np.float32)[self.state.done]
        return {"user_agent": Observation(f"screen {self.state.done}", choices=self.choices, array=screen)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Tap, and pay if that solves the task."""
        state, tap = self.state, chosen["user_agent"]
        state.taps += (-1 if tap is None else int(tap),)
        right = state.kind == "plain" and tap == self.right[state.done]
        if state.kind == "lucky" and tap is not None:
            coin = np.random.default_rng([state.salt, *state.taps]).random() < 0.5
            right = state.done + 1 < state.length or bool(coin)
        state.done += right
        solved = state.done == state.length
        state.over = solved or not right
        info = {"right": right, "share": state.done / state.length, "kind": state.kind, "length": state.length}
        return ({"user_agent": float(solved)}, info | {"success": solved}) if state.over else ({}, info)
