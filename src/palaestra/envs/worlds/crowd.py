"""`Crowd`: walkers on a ring whose number is drawn; in crowds of some sizes company pays, in the others room does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

MOVES = np.array([-1, 0, 1])


@dataclass
class _CrowdState:
    places: np.ndarray
    steps: int = 0


@ENVS.register("native/crowd")
class Crowd(NativeEnv):
    """Walkers on a ring of `cells` cells step left, stay or step right, all at once; how many there are is drawn.

    The number of walkers of an episode is one of `sizes`; the first so many agents take part. Where it is one of
    `company`, a walker is paid for each step by the share of the others that is within one cell of it, otherwise by the
    share that is not, divided by `horizon`. Nobody is told which of the two pays, only how many there are, so that each
    size is a game with its own best play.

    As an array a walker sees `seats` numbers, of which the one of the number of walkers is 1 and the others 0; then for
    each other walker 1, and the sine and cosine of the angle to it; then zeros for those who do not take part. Success: a mean of at least ⅔ in the last step. facts: size, the number
    of walkers; near, the share of the others within one cell.

    Args:
        sizes: numbers of walkers of which one is drawn for an episode.
        company: numbers with which company pays.
        seats: agents in all, at least the largest size; default: so many.
        cells: of the ring. horizon: steps.

    Raises:
        InputError: a size is below 2 or above `seats`, or there are fewer than 4 cells or no step.
    """

    facts = {"size": int, "near": float}

    def __init__(
        self,
        *,
        sizes: Sequence[int] = (3, 4, 6),
        company: Sequence[int] = (4, 6, 8),
        seats: int | None = None,
        cells: int = 16,
        horizon: int = 8,
    ) -> None:
        if not sizes or min(sizes) < 2 or max(sizes) > (seats or max(sizes)) or cells < 4 or horizon < 1:
            raise InputError(
                f"Crowd: sizes={list(sizes)} must be from 2 to seats={seats}, cells={cells} at least 4 and "
                f"horizon={horizon} 1"
            )
        self.sizes, self.cells, self.horizon = tuple(sizes), cells, horizon
        self.company = frozenset(company)
        self.agents = tuple(f"walker_{number}" for number in range(seats or max(sizes)))
        self.choices = ("left", "stay", "right")

    def begin(self) -> tuple[str, _CrowdState]:
        """So many walkers, anywhere."""
        size = self.sizes[int(self.rng.integers(len(self.sizes)))]
        places = self.rng.integers(self.cells, size=size)
        return f"crowd of {size}: {' '.join(map(str, places))}", _CrowdState(places)

    def away(self) -> np.ndarray:
        """Cells from each walker (row) to each one (column), int64[size, size], from -cells/2 to cells/2."""
        half = (self.cells - 1) // 2
        places = self.state.places
        found: np.ndarray = (places[None, :] - places[:, None] + half) % self.cells - half
        return found

    def look(self) -> dict[str, Observation]:
        """The others, seen from each walker."""
        if self.state.steps == self.horizon:
            return {}
        away, size = self.away(), len(self.state.places)
        others = away[~np.eye(size, dtype=bool)].reshape(size, size - 1)
        angles = others * (2 * np.pi / self.cells)
        seats = len(self.agents)
        seen = np.zeros((size, seats + 3 * (seats - 1)), np.float32)
        seen[:, size - 1] = 1
        slots = np.stack([np.ones_like(angles), np.sin(angles), np.cos(angles)], -1)
        seen[:, seats : seats + 3 * (size - 1)] = slots.reshape(size, -1)
        texts = [" ".join(f"{each:+d}" for each in sorted(row)) for row in others.tolist()]
        return {
            agent: Observation(f"{size} walkers, others at {text}", choices=self.choices, array=row)
            for agent, text, row in zip(self.agents, texts, seen)
        }

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """All move; what is no move stays."""
        state, size = self.state, len(self.state.places)
        there = self.agents[:size]
        moves = [MOVES[move] if isinstance(move := chosen[agent], int) else 0 for agent in there]
        state.places = (state.places + np.array(moves)) % self.cells
        state.steps += 1
        near = ((np.abs(self.away()) <= 1).sum(1) - 1) / (size - 1)
        paid = near if size in self.company else 1 - near
        info: dict[str, Any] = {"size": size, "near": dict(zip(there, near.tolist(), strict=True))}
        if state.steps == self.horizon:
            info["success"] = bool(paid.mean() >= 2 / 3)
        return dict(zip(there, (paid / self.horizon).tolist(), strict=True)), info
