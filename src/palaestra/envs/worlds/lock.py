"""`Lock`: a sequence that must be exactly right, so that chance never opens it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palaestra.envs.base import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.base import Chosen, NativeEnv
from palaestra.errors import InputError


@dataclass
class _State:
    lock: int
    turned: list[int | None] = field(default_factory=list)


@ENVS.register("native/lock")
class Lock(NativeEnv):
    """`locks` locks with a combination of `steps` numbers below `numbers` each, drawn from `draw`; reward 1 if all fit.

    Nothing is said before the last step. With the defaults chance opens one in 65,536. facts: reference, the
    combination as names of actions; right, whether this step was.
    """

    agents: tuple[str, ...] = ("opener",)
    facts = {"reference": list[str], "right": bool}

    def __init__(self, *, locks: int = 1, steps: int = 8, numbers: int = 4, draw: int = 0) -> None:
        if locks < 1 or steps < 1 or numbers < 2:
            raise InputError(f"Lock: locks={locks} and steps={steps} must be at least 1, numbers={numbers} at least 2")
        self.locks, self.steps = locks, steps
        self.right = np.random.default_rng(draw).integers(numbers, size=(locks, steps))
        self.choices = tuple(f"turn to {number}" for number in range(numbers))

    def begin(self) -> tuple[str, _State]:
        """Draw a lock."""
        lock = int(self.rng.integers(self.locks))
        return f"lock {lock}", _State(lock)

    def look(self) -> dict[str, Observation]:
        """Which step of which lock."""
        step = len(self.state.turned)
        if step == self.steps:
            return {}
        return {"opener": Observation(f"lock {self.state.lock}, step {step}", choices=self.choices)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Turn on."""
        state, right = self.state, self.right[self.state.lock].tolist()
        state.turned.append(chosen["opener"])
        last = len(state.turned) - 1
        info: dict[str, Any] = {
            "reference": [self.choices[each] for each in right],
            "right": state.turned[last] == right[last],
        }
        if last + 1 < self.steps:
            return {}, info
        opened = state.turned == right
        return {"opener": float(opened)}, info | {"success": opened}
