"""`PlacesGrid`: walkers visit places of a grid, in order as key, door and goal, or in any order as pieces of litter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
STEPS = np.array([*MOVES.values(), (0, 0)])
NAMES = ("key", "door", "goal")


@dataclass
class _PlacesState:
    cells: np.ndarray
    places: np.ndarray
    taken: np.ndarray
    reached: np.ndarray
    steps: int = 0


@ENVS.register("native/places_grid")
class PlacesGrid(NativeEnv):
    """Team grid env: `walkers` walkers must visit `places` places, by default in order; all paid once, more the sooner.

    The grid has `side` × `side` cells; each place is taken once, by whoever comes first.

    With `chain` a place counts only after the one before it, as the door after the key. The team succeeds when all
    places are taken: every walker is paid 1 - 0.9·t/horizon in step t, and nothing before. Walkers and places start in
    different cells, drawn for each episode; all move at once, walls stop a move, walkers may share a cell, and of two
    that come to a place in one step the first one takes it. The task follows DoorKey of MiniGrid and Trash-Grid of
    GMAH [32]. Left out: facing, inner walls, and the walk to a bin.

    A walker sees, as an array: for each place the rows and columns to it, divided by `side` - 1, and whether it is
    taken; then its own row and column, from -1 to 1. `goals`, `open`, `reached` and `aim` serve the workflow `options`.

    facts: places_taken, how many after the step.

    Raises:
        InputError: an option is out of range, or the grid is too small.
    """

    facts = {"places_taken": int}

    def __init__(
        self, *, walkers: int = 1, side: int = 6, places: int = 3, horizon: int = 40, chain: bool = True
    ) -> None:
        if min(walkers, places, horizon) < 1 or side < 2 or walkers + places > side**2:
            raise InputError(
                f"PlacesGrid: walkers={walkers}, places={places} and horizon={horizon} must be at least 1, side={side} "
                "at least 2, and each needs a cell"
            )
        self.side, self.horizon, self.chain = side, horizon, chain
        self.agents: tuple[str, ...] = tuple(f"walker_{number}" for number in range(walkers))
        own = chain and places == len(NAMES)
        self.goals: tuple[str, ...] = NAMES if own else tuple(f"place {number}" for number in range(places))

    def begin(self) -> tuple[str, _PlacesState]:
        """Draw different cells for all walkers and places."""
        n, many = len(self.agents), len(self.goals)
        drawn = self.rng.permutation(self.side**2)[: n + many]
        cells = np.stack(np.divmod(drawn, self.side), axis=1)
        empty = np.zeros(many, bool), np.zeros((n, many), bool)
        return f"cells {drawn.tolist()}", _PlacesState(cells[:n], cells[n:], *empty)

    def open(self) -> np.ndarray:
        """Which places are not taken yet, bool[places]."""
        return np.asarray(~self.state.taken)

    def reached(self) -> np.ndarray:
        """Which places each walker took in the last step, bool[walkers, places]."""
        return np.asarray(self.state.reached)

    def aim(self, agent: str, goal: int) -> np.ndarray:
        """Rows and columns from a walker to a place, divided by `side` - 1: float64[2]."""
        away = self.state.places[goal] - self.state.cells[self.agents.index(agent)]
        return np.asarray(away / (self.side - 1))

    def look(self) -> dict[str, Observation]:
        """Observation of each walker: the way to every place, whether it is taken, and its own cell."""
        state = self.state
        if state.steps == self.horizon or state.taken.all():
            return {}
        left = ", ".join(
            f"{name} at row {row} column {column}"
            for name, (row, column), taken in zip(self.goals, state.places.tolist(), state.taken, strict=True)
            if not taken
        )
        return {agent: self._seen(cell, left) for agent, cell in zip(self.agents, state.cells, strict=True)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Move all walkers at once, then take places that were reached; an invalid move stays in place."""
        state = self.state
        moves = [each if isinstance(each := chosen.get(agent), int) else -1 for agent in self.agents]
        state.cells = np.clip(state.cells + STEPS[moves], 0, self.side - 1)
        before = np.append(True, np.logical_and.accumulate(state.taken)[:-1]) if self.chain else True
        there = (state.cells[:, None] == state.places).all(-1) & ~state.taken & before
        state.reached = there & (there.cumsum(0) == 1)
        state.taken = state.taken | there.any(0)
        state.steps += 1
        info: dict[str, Any] = {"places_taken": int(state.taken.sum())}
        done = bool(state.taken.all())
        if done or state.steps == self.horizon:
            info["success"] = done
        return dict.fromkeys(self.agents, 1 - 0.9 * state.steps / self.horizon if done else 0.0), info

    def _seen(self, cell: np.ndarray, left: str) -> Observation:
        state, wide = self.state, self.side - 1
        away = np.column_stack([(state.places - cell) / wide, state.taken]).ravel()
        array = np.concatenate([away, 2 * cell / wide - 1]).astype(np.float32)
        return Observation(f"at row {cell[0]} column {cell[1]}; left: {left}", choices=tuple(MOVES), array=array)
