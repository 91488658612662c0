"""`Slips`: a path of cues; a wrong move leaves it, and nothing but going back leads on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

BACK = "back"


@dataclass
class _SlipsState:
    cues: tuple[int, ...]
    slipped: int | None = None
    at: int = 0
    moves: int = 0
    path: int | None = None


@ENVS.register("native/slips")
class Slips(NativeEnv):
    """Path env with recovery: `walker` picks moves by cues; after a wrong one none counts until `back`; 1 at the end.

    Reward 1 at the end; `cells` cues, within `horizon` moves.

    After a wrong move it has slipped: no move counts until it goes `back` to the cue that it left. With `spare` moves
    more than cells, below 2, a path with a slip never succeeds, so that good paths show none. slip: the episode begins
    after a wrong move at a random cue. paths: so many paths, drawn from `draw`; the walker sees the number of the path
    and of the cell, and not the cue, so that each path is learned by itself, and chance walks none of many cells.

    facts: bad, whether the move left the path or went on beside it; slips, whether it had left it; best, what would
    have been right.
    """

    agents: tuple[str, ...] = ("walker",)
    facts = {"bad": bool, "slips": bool, "best": str}

    def __init__(self, *, cells: int = 4, moves: int = 2, spare: int = 1, slip: bool = False, paths: int = 0,
                 draw: int = 0) -> None:  # fmt: skip
        if cells < 1 or moves < 2 or min(spare, paths) < 0:
            raise InputError(f"Slips: cells={cells} >= 1, moves={moves} >= 2, spare={spare} and paths={paths} >= 0")
        self.paths = np.random.default_rng(draw).integers(moves, size=(paths, cells))
        self.cells, self.moves, self.spare, self.slip = cells, moves, spare, slip
        self.choices = (*(f"move {number}" for number in range(moves)), BACK)

    def begin(self) -> tuple[str, _SlipsState]:
        """Draw a path, and perhaps a slip on it."""
        cues = tuple(int(each) for each in self.rng.integers(self.moves, size=self.cells))
        number = int(self.rng.integers(len(self.paths))) if len(self.paths) else None
        if number is not None:
            cues = tuple(self.paths[number].tolist())
        state = _SlipsState(cues, path=number)
        if self.slip:
            state.at = int(self.rng.integers(self.cells))
            state.slipped = (cues[state.at] + 1 + int(self.rng.integers(self.moves - 1))) % self.moves
        return f"path {' '.join(map(str, cues)) if number is None else number}", state

    def look(self) -> dict[str, Observation]:
        """Observation of the walker: the cue, or the slip; of numbered paths the path and the cell."""
        state = self.state
        if state.at == self.cells or state.moves == self.cells + self.spare:
            return {}
        cue = state.cues[state.at]
        seen = f"cue {cue}" if state.slipped is None else f"slipped at cue {cue} by move {state.slipped}"
        if state.path is not None:
            seen = f"path {state.path}, cell {state.at}{'' if state.slipped is None else ', slipped'}"
        return {"walker": Observation(seen, choices=self.choices)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Take a move; an invalid choice counts as the first."""
        state = self.state
        action = chosen["walker"] if isinstance(chosen["walker"], int) else 0
        slipped, best = state.slipped is not None, self.right()
        state.moves += 1
        if slipped:
            state.slipped = None if action == self.moves else state.slipped
        elif action == state.cues[state.at]:
            state.at += 1
        elif action != self.moves:
            state.slipped = action
        reached = state.at == self.cells
        info = {"bad": self.choices[action] != best, "slips": slipped, "best": best}
        if not self.look():
            info["success"] = reached
        return {"walker": float(reached)}, info

    def right(self) -> str:
        """The right action in the current state."""
        return BACK if self.state.slipped is not None else self.choices[self.state.cues[self.state.at]]
