"""`Walk`: so many steps on a plane, to a cell that one was asked for. Where play is understood after the fact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

MOVES = ((1, 0), (-1, 0), (0, 1), (0, -1))


@dataclass
class _WalkState:
    goal: tuple[int, int]
    at: tuple[int, int] = (0, 0)
    step: int = 0


@ENVS.register("native/walk")
class Walk(NativeEnv):
    """Grid-walk env with goals: `walker` sees the way left and moves; paid 1 if the last of `steps` steps ends there.

    `steps` steps, an even number, from the origin; the goal is another cell within `reach` that can be met.

    Reward 1 if the last step ends there. facts: reached, the cell as "x,y"; goal, the one that was asked for.
    """

    agents: tuple[str, ...] = ("walker",)
    facts = {"reached": str, "goal": str}

    def __init__(self, *, steps: int = 8, reach: int = 2) -> None:
        if steps < 2 or steps % 2 or not 1 <= reach <= steps // 2:
            raise InputError(f"Walk: steps={steps} must be even, and 1 <= reach={reach} <= half of it")
        self.steps = steps
        cells = [(x, y) for x in range(-reach, reach + 1) for y in range(-reach, reach + 1)]
        self.goals = [cell for cell in cells if (cell[0] + cell[1]) % 2 == 0 and cell != (0, 0)]
        self.choices = ("east", "west", "north", "south")

    def begin(self) -> tuple[str, _WalkState]:
        """Draw a goal."""
        goal = self.goals[int(self.rng.integers(len(self.goals)))]
        return f"go to {goal[0]},{goal[1]}", _WalkState(goal)

    def look(self) -> dict[str, Observation]:
        """Observation of the walker: the distance to the goal, and how many steps are left."""
        state = self.state
        if state.step == self.steps:
            return {}
        x, y = state.goal[0] - state.at[0], state.goal[1] - state.at[1]
        return {"walker": Observation(f"{x} east, {y} north, {self.steps - state.step} left", choices=self.choices)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Make one step; an invalid move stays in place."""
        state, move = self.state, chosen["walker"]
        if isinstance(move, int):
            state.at = (state.at[0] + MOVES[move][0], state.at[1] + MOVES[move][1])
        state.step += 1
        info: dict[str, Any] = {"reached": f"{state.at[0]},{state.at[1]}", "goal": f"{state.goal[0]},{state.goal[1]}"}
        if state.step < self.steps:
            return {}, info
        return {"walker": float(state.at == state.goal)}, info | {"success": state.at == state.goal}


def towards(rows: pl.DataFrame, reference: pl.DataFrame | None, condition: pl.DataFrame | None) -> np.ndarray:
    """Reward model features float64[rows, 4], |Δx|, |Δy|, d², equal, of frames: `reached` to `condition`'s `criterion`.

    `reference` is not used; without a condition it raises InputError.
    They are |Δx|, |Δy|, |Δx|² + |Δy|², and whether both cells are the same: `reached` of `rows` and `criterion` of
    `condition`, a cell for each row.
    """
    if condition is None:
        raise InputError("towards: needs a condition, a cell as `criterion` for each row")

    def cells(texts: pl.Series) -> np.ndarray:
        parts = texts.str.split(",").list.eval(pl.element().cast(pl.Float64))
        return np.stack([parts.list.get(0).to_numpy(), parts.list.get(1).to_numpy()], axis=1)

    away = np.abs(cells(rows["reached"]) - cells(condition["criterion"]))
    return np.column_stack([away, (away**2).sum(axis=1), (away == 0).all(axis=1)])
