"""`GoalGrid`: walk to the cell that one was asked for. What was reached can stand for what was asked (hindsight)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

MOVES = {"east": (1, 0), "west": (-1, 0), "north": (0, 1), "south": (0, -1)}


@dataclass
class _GoalGridState:
    goal: tuple[int, int]
    at: tuple[int, int]
    step: int = 0


@ENVS.register("native/goal_grid")
class GoalGrid(NativeEnv):
    """Goal-conditioned grid env: `walker` sees its cell and goal, moves, and is paid 1 on reaching it in time.

    `side` × `side` cells.

    Start and goal are drawn, two different cells; a step into the wall stays.
    facts: reached, the cell after the step as "x,y"; goal, the one that was asked for.

    Args:
        side: Cells of a side, at least 2.
        horizon: Most steps of an episode.
        ends: Whether reaching the goal ends the episode; otherwise it pays at every step that is there.
        told: Whether the goal stands in the observation; otherwise that is the place alone, as text and two features.
    """

    agents: tuple[str, ...] = ("walker",)
    facts = {"reached": str, "goal": str}

    def __init__(self, *, side: int = 6, horizon: int = 15, ends: bool = True, told: bool = True) -> None:
        if side < 2 or horizon < 1:
            raise InputError(f"GoalGrid: side={side} must be at least 2, horizon={horizon} at least 1")
        self.side, self.horizon, self.ends, self.told = side, horizon, ends, told
        self.choices = tuple(MOVES)

    def begin(self) -> tuple[str, _GoalGridState]:
        """Draw a start and a goal."""
        start, goal = (divmod(int(cell), self.side) for cell in self.rng.choice(self.side**2, 2, replace=False))
        return f"go to {_text(goal)}", _GoalGridState(goal, start)

    def look(self) -> dict[str, Observation]:
        """Observation of the walker: its cell, and the goal if the env tells it."""
        state = self.state
        if state.step == self.horizon or (self.ends and state.at == state.goal):
            return {}
        place = f"at {_text(state.at)}"
        if self.told:
            return {"walker": Observation(f"go to {_text(state.goal)}, {place}", choices=self.choices)}
        return {"walker": Observation(place, choices=self.choices, array=np.array(state.at, np.float32))}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Make one step; an invalid move stays in place."""
        state, move = self.state, chosen["walker"]
        if move is not None:
            east, north = MOVES[self.choices[move]]
            beyond = self.side - 1
            state.at = min(max(state.at[0] + east, 0), beyond), min(max(state.at[1] + north, 0), beyond)
        state.step += 1
        there = state.at == state.goal
        info = {"reached": _text(state.at), "goal": _text(state.goal), "success": there}
        return {"walker": float(there)}, info


def _text(cell: tuple[int, int]) -> str:
    return f"{cell[0]},{cell[1]}"
