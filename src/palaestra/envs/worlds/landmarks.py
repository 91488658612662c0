"""`Landmarks`: walkers look for landmarks that others see; what a message between them is worth can be measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
STEPS = tuple(MOVES.values())


@dataclass
class _LandmarksState:
    cells: np.ndarray
    landmarks: np.ndarray
    found: list[bool] = field(default_factory=list)
    steps: int = 0


@ENVS.register("native/landmarks")
class Landmarks(NativeEnv):
    """Multi-agent grid env: walkers seek their own landmark, see only the next one's; paid per cell nearer, till there.

    `walkers` walkers on a `side` × `side` grid move at once for `horizon` steps.

    A step pays each walker by how many cells it came nearer to its own landmark, divided by `side` - 1, until it has
    reached it. A walker succeeds if it was there at any time. Everybody starts in another cell than its landmark;
    walls stop a move. Each walker sees its own cell and one landmark. As an array: row and column of the two, from -1
    to 1. facts: found, whether this walker has reached its landmark; away, its distance in cells after the step.

    Args:
        shows: whose landmark is seen: "next", that of the next walker, "own", or "none" (zeros).

    Raises:
        InputError: an option is out of range.
    """

    facts = {"found": bool, "away": int}

    def __init__(
        self, *, walkers: int = 3, side: int = 4, horizon: int = 6, shows: Literal["next", "own", "none"] = "next"
    ) -> None:
        if walkers < 1 or side < 2 or horizon < 1 or shows not in ("next", "own", "none"):
            raise InputError(
                f"Landmarks: walkers={walkers} must be at least 1, side={side} 2, horizon={horizon} 1, and "
                f"shows={shows!r} next, own or none"
            )
        self.side, self.horizon, self.shows = side, horizon, shows
        self.agents: tuple[str, ...] = tuple(f"walker_{number}" for number in range(walkers))

    def begin(self) -> tuple[str, _LandmarksState]:
        """Draw the walkers' cells and their landmarks."""
        size = self.side**2
        cells = self.rng.integers(size, size=len(self.agents))
        landmarks = (cells + self.rng.integers(1, size, size=len(self.agents))) % size
        name = f"{cells.tolist()} to {landmarks.tolist()}"
        places = [np.stack(np.divmod(each, self.side), axis=1) for each in (cells, landmarks)]
        return name, _LandmarksState(*places, found=[False] * len(self.agents))  # type: ignore[misc, arg-type]

    def look(self) -> dict[str, Observation]:
        """Each walker sees its own cell and one landmark."""
        state = self.state
        if state.steps == self.horizon or all(state.found):
            return {}
        whose = np.arange(len(self.agents)) + (self.shows == "next")
        shown = state.landmarks[whose % len(self.agents)]
        return {agent: self._seen(*each) for agent, *each in zip(self.agents, state.cells, shown, strict=True)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Move all walkers at once; an invalid move stays in place."""
        state = self.state
        before = np.abs(state.cells - state.landmarks).sum(1)
        moves = [STEPS[each] if isinstance(each, int) else (0, 0) for each in map(chosen.get, self.agents)]
        state.cells = np.clip(state.cells + np.array(moves), 0, self.side - 1)
        away = np.abs(state.cells - state.landmarks).sum(1)
        nearer = np.where(state.found, 0.0, (before - away) / (self.side - 1)).tolist()
        state.found = (np.array(state.found) | (away == 0)).tolist()
        state.steps += 1
        info: dict[str, Any] = {"found": dict(zip(self.agents, state.found, strict=True))}
        info["away"] = dict(zip(self.agents, away.tolist(), strict=True))
        if state.steps == self.horizon or all(state.found):
            info["success"] = dict(info["found"])
        return dict(zip(self.agents, nearer, strict=True)), info

    def _seen(self, cell: np.ndarray, landmark: np.ndarray) -> Observation:
        hidden = self.shows == "none"
        scaled = 2.0 * np.concatenate([cell, landmark]) / (self.side - 1) - 1.0
        scaled[2:] *= not hidden
        text = f"at {cell[0]},{cell[1]}" + ("" if hidden else f", a landmark at {landmark[0]},{landmark[1]}")
        return Observation(text, choices=tuple(MOVES), array=scaled.astype(np.float32))
