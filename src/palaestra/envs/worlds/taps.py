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
    task: int
    length: int
    done: int = 0
    wrong: int = 0
    over: bool = False


@ENVS.register("native/taps")
class Taps(NativeEnv):
    """GUI tap env: `user_agent` sees task and screen and taps a button; a task of length L needs L right taps, pays 1.

    L is from 1 to `longest`; a wrong tap ends it.

    Of `buttons` on a screen one is right, drawn from `draw`; screen k is the same in all tasks that reach it, so that
    what a short task teaches helps a long one. facts: right, whether this tap was; share, of the task's taps up to it.
    features: the screen alone, so that a network shares it; the text says the task, for tables and curricula.

    Args:
        longest: Taps of the longest task.
        buttons: Buttons of a screen.
        spare: Wrong taps that a task allows; each leaves the screen as it is.
        luck: Chance that a wrong tap leads on like the right one in task 1. It falls in equal steps to 0 in the last
            task, so that success at the first tasks says little about the taps.
        equal: Whether all tasks need `longest` taps, so that they differ by their luck alone.
        draw: Seed of the right buttons.
    """

    agents: tuple[str, ...] = ("user_agent",)
    facts = {"right": bool, "share": float}

    def __init__(
        self,
        *,
        longest: int = 6,
        buttons: int = 6,
        spare: int = 0,
        luck: float = 0.0,
        equal: bool = False,
        draw: int = 0,
    ) -> None:
        if longest < 1 or buttons < 2:
            raise InputError(f"Taps: longest={longest} must be at least 1 and buttons={buttons} at least 2")
        if spare < 0 or not 0 <= luck <= 1:
            raise InputError(f"Taps: spare={spare} must not be negative, luck={luck} must be in [0, 1]")
        self.longest, self.right = longest, np.random.default_rng(draw).integers(buttons, size=longest).tolist()
        self.choices, self.spare = tuple(f"tap {number}" for number in range(buttons)), spare
        self.luck, self.equal = luck * np.linspace(1, 0, longest), equal

    def begin(self) -> tuple[str, _TapsState]:
        """Draw a task."""
        task = int(self.rng.integers(1, self.longest + 1))
        return self._name(task), _TapsState(task, self.longest if self.equal else task)

    def _name(self, task: int) -> str:
        return f"task {task}" if self.equal else f"task of {task}"

    def look(self) -> dict[str, Observation]:
        """Observation of the user agent: the task and the screen."""
        if self.state.over:
            return {}
        text = f"{self._name(self.state.task)}, screen {self.state.done}"
        screen = np.eye(self.longest, dtype=np.float32)[self.state.done]
        return {"user_agent": Observation(text, choices=self.choices, array=screen)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Tap, and pay if the task is solved."""
        state = self.state
        right = chosen["user_agent"] == self.right[state.done]
        luck = float(self.luck[state.task - 1])
        passed = right or (luck > 0 and self.rng.random() < luck)
        state.done, state.wrong = state.done + passed, state.wrong + (not passed)
        solved = state.done == state.length
        state.over = solved or state.wrong > self.spare
        info = {"right": right, "share": state.done / state.length}
        return ({"user_agent": float(solved)}, info | {"success": solved}) if state.over else ({}, info)
