"""`Steps`: a fixed number of choices, and one number at the end that some of them decided. Which did?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError, nearest

PAYS = ("all", "share", "sum")


@dataclass
class _StepsState:
    step: int = 0
    earned: tuple[float, ...] = ()


@ENVS.register("native/steps")
class Steps(NativeEnv):
    """Delayed-reward env: `chooser` sees only the step's number; paid at the end by `pay`: if all right, or a share.

    `steps` steps with `actions` actions each.

    pay: "all", 1 if every one of the `decisive` steps was right, else 0; "share", the share of them that were right;
    "sum", the sum of what the chosen actions are worth, uniform in [0, 1], over the best possible sum. Which steps
    decide, and what is right or worth how much, is drawn from `draw`, the same in every process. facts: right, whether
    this action was (where it decides); worth, what it adds, which the agent does not see.
    """

    agents: tuple[str, ...] = ("chooser",)
    facts = {"right": bool, "worth": float}

    def __init__(
        self,
        *,
        steps: int = 12,
        actions: int = 4,
        decisive: int | None = None,
        pay: Literal["all", "share", "sum"] = "all",
        draw: int = 0,
    ) -> None:
        if pay not in PAYS:
            raise InputError(f"Steps: pay={pay!r}{nearest(str(pay), PAYS)}")
        decisive = steps if decisive is None else decisive
        if not 1 <= decisive <= steps or actions < 2:
            raise InputError(f"Steps: 1 <= decisive={decisive} <= steps={steps} and actions={actions} >= 2 is needed")
        self.steps, self.actions, self.pay = steps, actions, pay
        rng = np.random.default_rng(draw)
        self.decides = np.isin(np.arange(steps), rng.permutation(steps)[:decisive])
        self.worth = (
            rng.random((steps, actions)) if pay == "sum" else np.eye(actions)[rng.integers(actions, size=steps)]
        )
        self.worth = self.worth * self.decides[:, None]
        self.best = float(self.worth.max(axis=1).sum())
        self.choices = tuple(f"action {number}" for number in range(actions))

    def begin(self) -> tuple[str, _StepsState]:
        """Start; every episode is the same."""
        return "steps", _StepsState()

    def look(self) -> dict[str, Observation]:
        """Observation of the chooser: the number of the step."""
        if self.state.step == self.steps:
            return {}
        return {"chooser": Observation(f"step {self.state.step} of {self.steps}", choices=self.choices)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Take the action; an invalid one is worth nothing."""
        state, action = self.state, chosen["chooser"]
        worth = float(self.worth[state.step, action]) if isinstance(action, int) else 0.0
        right = not self.decides[state.step] or worth == self.worth[state.step].max()
        state.step, state.earned = state.step + 1, (*state.earned, worth)
        info: dict[str, Any] = {"right": bool(right), "worth": worth}
        if state.step < self.steps:
            return {}, info
        share = sum(state.earned) / self.best
        reward = float(share > 1 - 1e-9) if self.pay == "all" else share
        return {"chooser": reward}, info | {"success": share > 1 - 1e-9}
