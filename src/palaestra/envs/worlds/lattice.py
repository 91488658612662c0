"""`Lattice`: neighbours on a torus play a two-action game with each other, all at once and again and again.

Setting of arXiv 2601.05509, where exploration breaks the cooperation of agents that share a network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.dilemma import MOVES
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

SIDES = ((1, 0), (-1, 0), (1, 1), (-1, 1))
"""Shift and axis by which the cell above, below, to the left and to the right of each cell comes to its place."""


@dataclass
class _LatticeState:
    last: np.ndarray
    round: int = 0


@ENVS.register("native/lattice")
class Lattice(NativeEnv):
    """Spatial prisoner's dilemma: each cell of a torus makes one move against four neighbours; paid their payoffs' sum.

    The torus has `size` × `size` cells.

    A cell cooperates or defects towards all neighbours alike and gets the sum of four payoffs: R = 1 if both
    cooperate, S = -`dilemma` for cooperating alone, T = 1 + `dilemma` for defecting alone, P = 0 if both defect. What
    was done before the first round is drawn, with chance 1/2. An illegal action is defection. Success: everybody
    cooperated in the last round.

    Observation array, float32[5]: 1 where the cell itself and its neighbours above, below, left and right cooperated,
    0 where they defected. facts: cooperated, 1 or 0.

    Args:
        size: of each side, at least 3. rounds: of an episode. dilemma: D_r, at least 0.
        payoffs: R, S, T and P instead.

    Raises:
        InputError: a number is out of range.
    """

    facts = {"cooperated": float}

    def __init__(
        self, *, size: int = 5, rounds: int = 25, dilemma: float = 0.2, payoffs: Sequence[float] | None = None
    ) -> None:
        found = (1.0, -dilemma, 1.0 + dilemma, 0.0) if payoffs is None else tuple(payoffs)
        if size < 3 or rounds < 1 or dilemma < 0 or len(found) != 4:
            raise InputError(
                f"Lattice: size={size} must be at least 3, rounds={rounds} at least 1, dilemma={dilemma} at least 0, "
                f"payoffs={payoffs} four numbers"
            )
        self.size, self.rounds = size, rounds
        reward, sucker, temptation, punishment = found
        self.payoffs = np.array([[punishment, temptation], [sucker, reward]])
        """By own cooperation and that of the other."""
        self.agents = tuple(f"cell_{number}" for number in range(size * size))

    def begin(self) -> tuple[str, _LatticeState]:
        """Draw everybody's move before the first round."""
        last = self.rng.integers(2, size=(self.size, self.size))
        return f"lattice:{''.join('DC'[each] for each in last.ravel())}", _LatticeState(last)

    def views(self) -> np.ndarray:
        """Last moves of each cell and its four neighbours, int[cells, 5]: 1 for cooperation, else 0."""
        last = self.state.last
        around = [np.roll(last, shift, axis) for shift, axis in SIDES]
        return np.stack([last, *around], axis=-1).reshape(-1, 5)

    def look(self) -> dict[str, Observation]:
        """Each cell sees its own last move and those of its neighbours."""
        if self.state.round == self.rounds:
            return {}
        views = self.views()
        arrays = views.astype(np.float32)
        return {
            agent: Observation("".join("DC"[each] for each in seen), MOVES, array=array)
            for agent, seen, array in zip(self.agents, views.tolist(), arrays, strict=True)
        }

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Play a round between all pairs of neighbours."""
        state = self.state
        moves = np.array([chosen[agent] == 0 for agent in self.agents], int).reshape(self.size, self.size)
        rewards = sum(self.payoffs[moves, np.roll(moves, shift, axis)] for shift, axis in SIDES)
        state.last, state.round = moves, state.round + 1
        told: dict[str, Any] = {"cooperated": dict(zip(self.agents, moves.ravel().astype(float).tolist(), strict=True))}
        if state.round == self.rounds:
            told["success"] = bool(moves.all())
        return dict(zip(self.agents, np.ravel(rewards).tolist(), strict=True)), told
