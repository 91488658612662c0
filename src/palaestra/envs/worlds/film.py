"""`Film`: a line walked in three phases and seen through noisy features, in most of which nothing happens ([199])."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

PHASES = 3


@dataclass
class _FilmState:
    cell: int = 0
    steps: int = 0


@ENVS.register("native/film")
class Film(NativeEnv):
    """Line env: `walker` sees only its cell's number, camera frames are facts; 1 for ending in the last third of cells.

    `cells` cells, a third of them each phase; the camera gives `features` numbers.

    Two features of each phase are high in it, all have noise. Reward 1 for ending in the last phase. facts: frame, what
    the camera saw after the step.
    """

    agents: tuple[str, ...] = ("walker",)
    facts = {"frame": list[float]}

    def __init__(self, *, cells: int = 12, horizon: int = 11, features: int = 40, noise: float = 0.3) -> None:
        if cells < PHASES or horizon < 1 or features < 2 * PHASES or not noise >= 0:
            raise InputError(f"Film: {cells=} >= {PHASES}, {horizon=} >= 1, {features=} >= {2 * PHASES}, {noise=} >= 0")
        self.cells, self.horizon, self.features, self.noise = cells, horizon, features, float(noise)

    def begin(self) -> tuple[str, _FilmState]:
        """Start at the left end."""
        return "film", _FilmState()

    def look(self) -> dict[str, Observation]:
        """Observation of the walker: its cell."""
        if self.state.steps >= self.horizon:
            return {}
        return {"walker": Observation(f"cell {self.state.cell} of {self.cells}", choices=("left", "right"))}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Make one step, and record its camera frame as a fact."""
        state = self.state
        move = {0: -1, 1: 1}.get(chosen["walker"], 0)
        state.cell = min(max(state.cell + move, 0), self.cells - 1)
        state.steps += 1
        phase = state.cell * PHASES // self.cells
        frame = self.noise * self.rng.normal(size=self.features)
        frame[2 * phase : 2 * phase + 2] += 1.0
        info: dict[str, Any] = {"frame": frame.tolist()}
        if state.steps < self.horizon:
            return {}, info
        there = phase == PHASES - 1
        return {"walker": float(there)}, info | {"success": there}


def demonstrator() -> Callable[[Any], str]:
    """Makes a policy function (request -> action), no arguments, that always goes right in `native/film`."""
    return lambda request: "right"
