"""`Rendezvous`: walkers on a ring who know nothing but where the others are, seen from themselves, try to meet."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

MOVES = (-1, 0, 1)


@dataclass
class _RendezvousState:
    places: dict[str, int]
    steps: int = 0


@ENVS.register("native/rendezvous")
class Rendezvous(NativeEnv):
    """Ring env: walkers see those near them and move at once; all are paid by the largest number in one cell.

    `walkers` walkers on a ring of `cells` cells, for `horizon` steps.

    After each step all get (largest number in one cell - 1) / (walkers - 1) / horizon; with `last` only the last step
    pays, without the division by `horizon`. A success is all of them but one in a cell at the end.

    A walker sees the others within `sight` cells (default: all), as distances from itself: no place could be agreed on
    before, and who follows the others can be led astray. As an array: how many others stand in each cell, seen from
    its own. facts: place; sees, names of the others in sight; together, the largest number in one cell after the step.
    """

    facts = {"place": int, "sees": list[str], "together": int}

    def __init__(
        self, *, walkers: int = 4, cells: int = 8, horizon: int = 8, sight: int | None = None, last: bool = False
    ) -> None:
        if walkers < 2 or cells < 3 or horizon < 1 or (sight is not None and sight < 0):
            raise InputError(
                f"Rendezvous: walkers={walkers} must be at least 2, cells={cells} 3, horizon={horizon} 1, "
                f"and sight={sight} 0"
            )
        self.last, self.cells, self.horizon, self.sight = last, cells, horizon, cells if sight is None else sight
        self.agents: tuple[str, ...] = tuple(f"walker_{number}" for number in range(walkers))

    def begin(self) -> tuple[str, _RendezvousState]:
        """Draw the walkers' places; the task is named by the distances."""
        drawn = self.rng.integers(self.cells, size=len(self.agents)).tolist()
        state = _RendezvousState(dict(zip(self.agents, drawn, strict=True)))
        return f"meet from {sorted((place - drawn[0]) % self.cells for place in drawn)}", state

    def look(self) -> dict[str, Observation]:
        """Each walker sees the relative places of those within sight."""
        if self.state.steps == self.horizon:
            return {}
        return {agent: self._seen(agent) for agent in self.agents}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Move all walkers at once; an invalid move stays."""
        state = self.state
        sees = {agent: sorted(self._near(agent)) for agent in self.agents}
        for agent, move in chosen.items():
            step = MOVES[move] if isinstance(move, int) else 0
            state.places[agent] = (state.places[agent] + step) % self.cells
        state.steps += 1
        together = max(Counter(state.places.values()).values())
        others = len(self.agents) - 1
        info: dict[str, Any] = {"place": dict(state.places), "sees": sees, "together": together}
        over = state.steps == self.horizon
        if over:
            info["success"] = together >= others
        share = 1.0 / self.horizon if not self.last else float(over)
        return dict.fromkeys(self.agents, share * (together - 1) / others), info

    def _near(self, agent: str) -> dict[str, int]:
        """Distance of each other walker in sight, from -cells/2 to cells/2."""
        own, half = self.state.places[agent], (self.cells - 1) // 2
        away = {
            other: (place - own + half) % self.cells - half
            for other, place in self.state.places.items()
            if other != agent
        }
        return {other: distance for other, distance in away.items() if abs(distance) <= self.sight}

    def _seen(self, agent: str) -> Observation:
        near = sorted(self._near(agent).values())
        counts = np.bincount(np.array(near, int) % self.cells, minlength=self.cells).astype(np.float32)
        text = " ".join(f"{distance:+d}" for distance in near) or "nobody"
        return Observation(f"others at {text}", choices=("left", "stay", "right"), array=counts)
