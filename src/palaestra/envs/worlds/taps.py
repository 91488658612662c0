"""`Taps`: short tasks and long ones that share their screens. Where easy tasks first, and rewards in parts, differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError


@dataclass
class _TapsState:
    length: int
    done: int = 0
    over: bool = False


@ENVS.register("native/taps")
class Taps(NativeEnv):
    """A task of length L, from 1 to `longest`, needs L right taps in a row; a wrong one ends it. Reward 1 for all.

    Of `buttons` on a screen one is right, drawn from `draw`; screen k is the same in all tasks that reach it, so that
    what a short task teaches helps a long one. facts: right, whether this tap was; share, of the task's taps up to it.
    features: the screen alone, so that a network shares it; the text says the task, for tables and curricula.
    """

    agents: tuple[str, ...] = ("user_agent",)
    facts = {"right": bool, "share": float}

    def __init__(self, *, longest: int = 6, buttons: int = 6, draw: int = 0) -> None:
        if longest < 1 or buttons < 2:
            raise InputError(f"Taps: longest={longest} must be at least 1 and buttons={buttons} at least 2")
        self.longest, self.right = longest, np.random.default_rng(draw).integers(buttons, size=longest).tolist()
        self.choices = tuple(f"tap {number}" for number in range(buttons))

    def begin(self) -> tuple[str, _TapsState]:
        """Draw a length."""
        length = int(self.rng.integers(1, self.longest + 1))
        return f"task of {length}", _TapsState(length)

    def look(self) -> dict[str, Observation]:
        """The task and the screen."""
        if self.state.over:
            return {}
        text = f"task of {self.state.length}, screen {self.state.done}"
        screen = np.eye(self.longest, dtype=np.float32)[self.state.done]
        return {"user_agent": Observation(text, choices=self.choices, array=screen)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Tap."""
        state = self.state
        right = chosen["user_agent"] == self.right[state.done]
        state.done += right
        solved = state.done == state.length
        state.over = solved or not right
        info = {"right": right, "share": state.done / state.length}
        return ({"user_agent": float(solved)}, info | {"success": solved}) if state.over else ({}, info)
