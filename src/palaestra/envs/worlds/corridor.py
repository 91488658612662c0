"""`Corridor`: fetch the key at the left end, then open the door at the right one. Only the door is rewarded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

MOVES = ("left", "right", "wait")
OPEN = "the door is open"


@dataclass
class _CorridorState:
    cell: int
    key: bool = False
    opened: bool = False
    steps: int = 0


@ENVS.register("native/corridor")
class Corridor(NativeEnv):
    """Corridor env: `walker` sees its cell, fetches a key at one end, and is paid 1 for opening the other end's door.

    `cells` cells, at most `horizon` steps; it starts in the middle. With the key every cell looks new.

    The small sparse task on which credit is compared: 7 cells need 9 steps at least, a random walker opens the door in
    about one episode of eight. clock: the number of the step is seen, too, so that no observation recurs in an episode.
    facts: cell (where the step ended), key, opened; place (where it began, a number for each cell, and for each with
    the key). `subgoals` are the places on the way.
    """

    agents: tuple[str, ...] = ("walker",)
    facts = {"cell": int, "key": bool, "opened": bool, "place": int}

    def __init__(self, *, cells: int = 7, horizon: int = 24, clock: bool = False) -> None:
        if cells < 2 or horizon < 1:
            raise InputError(f"Corridor: cells={cells} must be at least 2 and horizon={horizon} at least 1")
        self.cells, self.horizon, self.clock = cells, horizon, clock

    def begin(self) -> tuple[str, _CorridorState]:
        """Start in the middle; every episode is the same."""
        return "corridor", _CorridorState(self.cells // 2)

    def subgoals(self) -> list[str]:
        """Sub-goals on the shortest path, as texts: to the key, from the key to the door, and the open door."""
        there = [f"cell {cell}, holding nothing" for cell in range(self.cells // 2 - 1, 0, -1)]
        return [*there, *(f"cell {cell}, holding the key" for cell in range(self.cells - 1)), OPEN]

    def met(self, subgoal: str) -> bool:
        """Whether the walker's current state satisfies a sub-goal from `subgoals`."""
        held = "the key" if self.state.key else "nothing"
        return self.state.opened if subgoal == OPEN else subgoal == f"cell {self.state.cell}, holding {held}"

    def look(self) -> dict[str, Observation]:
        """Observation of the walker: its cell, whether it holds the key, and the step if there is a clock."""
        if self.state.opened or self.state.steps >= self.horizon:
            return {}
        held = "the key" if self.state.key else "nothing"
        step = f", step {self.state.steps}" if self.clock else ""
        return {"walker": Observation(f"cell {self.state.cell} of {self.cells}, holding {held}{step}", choices=MOVES)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Make one step; a step into the wall, or an invalid move, stays in place."""
        state, action = self.state, chosen["walker"]
        place = state.cell + self.cells * state.key
        state.cell = min(max(state.cell + {0: -1, 1: 1}.get(action, 0), 0), self.cells - 1)
        state.steps += 1
        state.key = state.key or state.cell == 0
        state.opened = state.key and state.cell == self.cells - 1
        info: dict[str, Any] = {"cell": state.cell, "key": state.key, "opened": state.opened, "place": place}
        if state.opened or state.steps >= self.horizon:
            info["success"] = state.opened
        return ({"walker": 1.0} if state.opened else {}), info
