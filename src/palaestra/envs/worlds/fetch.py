"""`Fetch`: bring the key to the door. A reward for picking it up can be farmed by dropping it again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1), "pick up": None, "drop": None}


@dataclass
class _FetchState:
    cell: tuple[int, int]
    key: bool = False
    opened: bool = False
    steps: int = 0


@ENVS.register("native/fetch")
class Fetch(NativeEnv):
    """Grid env: `hand` sees its cell, picks up a key and carries it to a door; paid 1 for opening it.

    A grid of `side` × `side`, the key in the upper right corner, the door near the lower left one; starts anywhere.

    With the key, the door opens as soon as it is reached: reward 1, the end. A key that is dropped is back where it
    was. facts: carried, key_gap and door_gap, steps to both, after the move; picked, dropped and opened, what the move
    did; progress before it, 0 as far from the goal as can be, 1 at the goal.
    """

    agents: tuple[str, ...] = ("hand",)
    facts = {
        "carried": bool,
        "key_gap": float,
        "door_gap": float,
        "picked": bool,
        "dropped": bool,
        "opened": bool,
        "progress": float,
    }

    def __init__(self, *, side: int = 5, horizon: int = 30) -> None:
        if side < 3 or horizon < 1:
            raise InputError(f"Fetch: side={side} must be at least 3 and horizon={horizon} at least 1")
        self.side, self.horizon = side, horizon
        self.key, self.door, self.choices = (0, side - 1), (side - 1, 1), tuple(MOVES)
        between = _steps(self.key, self.door)
        self.longest = 2 * (side - 1) + 1 + between  # from the corner that is farthest from the key

    def begin(self) -> tuple[str, _FetchState]:
        """Draw the cell where the hand starts."""
        row, column = self.rng.integers(self.side, size=2).tolist()
        return f"fetch from row {row} column {column}", _FetchState((row, column))

    def look(self) -> dict[str, Observation]:
        """Observation of the hand: its cell, and whether it holds the key."""
        state = self.state
        if state.opened or state.steps >= self.horizon:
            return {}
        held = "the key" if state.key else "nothing"
        return {"hand": Observation(f"at row {state.cell[0]} column {state.cell[1]}, holding {held}", self.choices)}

    def _left(self) -> int:
        """Moves that are left at best."""
        if self.state.key:
            return _steps(self.state.cell, self.door)
        return _steps(self.state.cell, self.key) + 1 + _steps(self.key, self.door)

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Move, pick up or drop; a step into the wall, or an invalid move, changes nothing."""
        state, action = self.state, chosen["hand"]
        had, progress = state.key, 1 - self._left() / self.longest
        name = self.choices[action] if isinstance(action, int) else ""
        down, right = MOVES.get(name) or (0, 0)
        state.cell = tuple(min(max(at + by, 0), self.side - 1) for at, by in zip(state.cell, (down, right)))
        if name == "drop":
            state.key = False
        state.key |= name == "pick up" and state.cell == self.key
        state.opened = state.key and state.cell == self.door
        state.steps += 1
        info: dict[str, Any] = {
            "carried": state.key,
            "key_gap": float(_steps(state.cell, self.key)),
            "door_gap": float(_steps(state.cell, self.door)),
            "picked": state.key and not had,
            "dropped": had and not state.key,
            "opened": state.opened,
            "progress": progress,
        }
        if state.opened or state.steps >= self.horizon:
            info["success"] = state.opened
        return ({"hand": 1.0} if state.opened else {}), info


def _steps(one: tuple[int, int], other: tuple[int, int]) -> int:
    return abs(one[0] - other[0]) + abs(one[1] - other[1])
