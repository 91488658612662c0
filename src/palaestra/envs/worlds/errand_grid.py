"""`ErrandGrid`: walk from the middle of a grid to the cell that the task names. Where tasks are proposed in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

MOVES = {"east": (1, 0), "west": (-1, 0), "north": (0, 1), "south": (0, -1)}


@dataclass
class _ErrandState:
    goal: tuple[int, int]
    at: tuple[int, int]
    steps: int = 0


@ENVS.register("native/errand_grid")
class ErrandGrid(NativeEnv):
    """Goal-conditioned grid env: `walker` sees the distance to its goal and is paid 1 for reaching it in time.

    A grid of `size` × `size` cells, at most `horizon` steps.

    The walker sees how far the goal is, so that what is learned of one task is of use for others. Every `kept`-th cell
    is a goal of evaluation only (`split="test"`); in training the env itself draws among the first `fixed` of the
    others, counted from the corner. `describe` says what the place is, `read_task` makes a reset seed of a task in
    words.

    Reward 1 if the goal is reached. facts: distance, to the goal after the step.
    """

    agents: tuple[str, ...] = ("walker",)
    facts = {"distance": int}

    def __init__(
        self, *, size: int = 7, horizon: int = 10, fixed: int = 4, kept: int = 4, split: str = "train"
    ) -> None:
        if size < 3 or size % 2 == 0 or horizon < 1 or fixed < 1 or kept < 2:
            raise InputError(
                f"ErrandGrid: size={size} must be odd and at least 3, horizon={horizon} and fixed={fixed} at least 1, "
                f"kept={kept} at least 2"
            )
        self.size, self.horizon = size, horizon
        middle = size // 2
        cells = [(x, y) for x in range(size) for y in range(size) if (x, y) != (middle, middle)]
        self.held_out = cells[::kept]
        self.known = [cell for cell in cells if cell not in set(self.held_out)]
        self.goals = self.held_out if split == "test" else self.known[:fixed]
        self.start = (middle, middle)
        self.choices = tuple(MOVES)

    def describe(self) -> str:
        """Description of the env in words, from which tasks can be proposed."""
        return (
            f"A grid of {self.size} by {self.size} cells, from 0,0 in the south-west to "
            f"{self.size - 1},{self.size - 1}. A walker begins in {self.start[0]},{self.start[1]} and takes "
            f"{self.horizon} steps at most. A task is a line `go to X,Y`."
        )

    def read_task(self, text: str) -> int:
        """The reset seed of a task text `go to X,Y`; raises ValueError if it is not a training task.

        Raises:
            ValueError: it is no task of this place, trivial, or held out; says why.
        """
        words = text.strip().removeprefix("go to ").split(",")
        if not text.strip().startswith("go to ") or len(words) != 2 or not all(each.isdecimal() for each in words):
            raise ValueError("does not read `go to X,Y`")
        cell = (int(words[0]), int(words[1]))
        if max(cell) >= self.size:
            raise ValueError("is outside of the grid")
        if cell == self.start:
            raise ValueError("is where the walker begins")
        if cell in self.held_out:
            raise ValueError("is held out")
        return self.known.index(cell)

    def reset(self, seed: int) -> Any:
        """Begin an episode: a seed below the number of known goals selects one, a larger one draws of the split."""
        self._goal = self.known[seed] if seed < len(self.known) else None
        return super().reset(seed)

    def begin(self) -> tuple[str, _ErrandState]:
        """The goal of the seed, or one at random."""
        goal = self._goal or self.goals[int(self.rng.integers(len(self.goals)))]
        return f"go to {goal[0]},{goal[1]}", _ErrandState(goal, self.start)

    def look(self) -> dict[str, Observation]:
        """Observation of the walker: the distance to the goal, east and north."""
        state = self.state
        if state.at == state.goal or state.steps >= self.horizon:
            return {}
        x, y = state.goal[0] - state.at[0], state.goal[1] - state.at[1]
        return {"walker": Observation(f"{x} east, {y} north", choices=self.choices)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Make one step; a step off the grid, or an invalid move, stays in place."""
        state, move = self.state, chosen["walker"]
        if isinstance(move, int):
            x, y = MOVES[self.choices[move]]
            state.at = (min(max(state.at[0] + x, 0), self.size - 1), min(max(state.at[1] + y, 0), self.size - 1))
        state.steps += 1
        left = abs(state.goal[0] - state.at[0]) + abs(state.goal[1] - state.at[1])
        info: dict[str, Any] = {"distance": left}
        if not self.look():
            info["success"] = left == 0
        return {"walker": float(left == 0)}, info
