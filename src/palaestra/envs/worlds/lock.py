"""`Lock`: a sequence that must be exactly right, so that chance never opens it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError
from palaestra.rewards.paths import path_credit


@dataclass
class _LockState:
    lock: int
    turned: list[int | None] = field(default_factory=list)


@ENVS.register("native/lock")
class Lock(NativeEnv):
    """Sparse-reward env: `opener` enters a combination of `steps` numbers unseen; paid 1 at the end if all are right.

    `locks` locks with numbers below `numbers`, drawn from `draw`.

    Nothing is said before the last step. With the defaults chance opens one in 65,536. ends: the first wrong number
    ends the episode, as a wrong lead ends a search for evidence. gamma: what the way pays where the lock stays shut,
    `palaestra.rewards.paths.path_credit` of the steps (ExCyTIn-Bench [187] has .4); 0 pays nothing for it.
    shown: what was turned is seen, and not the number of the step only.
    facts: reference, the combination as names of actions; right, whether this step was.
    """

    agents: tuple[str, ...] = ("opener",)
    facts = {"reference": list[str], "right": bool}

    def __init__(
        self,
        *,
        locks: int = 1,
        steps: int = 8,
        numbers: int = 4,
        ends: bool = False,
        gamma: float = 0.0,
        draw: int = 0,
        shown: bool = False,
    ) -> None:
        if locks < 1 or steps < 1 or numbers < 2 or not 0 <= gamma <= 1:
            raise InputError(
                f"Lock: locks={locks} and steps={steps} must be at least 1, numbers={numbers} at least 2, "
                f"gamma={gamma} in [0, 1]"
            )
        self.locks, self.steps, self.ends, self.gamma = locks, steps, ends, float(gamma)
        self.shown = shown
        self.right = np.random.default_rng(draw).integers(numbers, size=(locks, steps))
        self.choices = tuple(f"turn to {number}" for number in range(numbers))

    def begin(self) -> tuple[str, _LockState]:
        """Draw a lock."""
        lock = int(self.rng.integers(self.locks))
        return f"lock {lock}", _LockState(lock)

    def look(self) -> dict[str, Observation]:
        """Observation of the opener: the number of the lock and the step, and its turns so far if `shown`."""
        step = len(self.state.turned)
        if step == self.steps or (self.ends and self.state.turned != self.right[self.state.lock].tolist()[:step]):
            return {}
        seen = f", turned {' '.join(str(each) for each in self.state.turned) or 'nothing'}" if self.shown else ""
        return {"opener": Observation(f"lock {self.state.lock}, step {step}{seen}", choices=self.choices)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Turn one number; after the last one pay."""
        state, right = self.state, self.right[self.state.lock].tolist()
        state.turned.append(chosen["opener"])
        last = len(state.turned) - 1
        info: dict[str, Any] = {
            "reference": [self.choices[each] for each in right],
            "right": state.turned[last] == right[last],
        }
        opened = state.turned == right
        if last + 1 < self.steps and not (self.ends and not info["right"]):
            return {}, info
        return {"opener": float(opened) if opened or not self.gamma else self._way()}, info | {"success": opened}

    def _way(self) -> float:
        """Reward for the right steps of a lock that stays shut."""
        turned = [*self.state.turned, *[None] * (self.steps - len(self.state.turned))]
        right = [one == other for one, other in zip(turned, self.right[self.state.lock].tolist(), strict=True)]
        return float(path_credit([*right[:-1], False], self.gamma))
