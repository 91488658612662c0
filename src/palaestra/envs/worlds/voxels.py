"""`Voxels`: one agent per cell of a volume says what belongs to the object, all at once, in rounds ([5])."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

MOVES = (-0.4, -0.2, -0.1, 0.1, 0.2, 0.4)
LEAST = 0.01
TOLD = {0: "", 1: ", inside", -1: ", outside"}


@dataclass
class _VoxelsState:
    truth: np.ndarray
    feature: np.ndarray
    edge: np.ndarray
    chance: np.ndarray
    told: np.ndarray
    rounds: int = 0


@ENVS.register("native/voxels")
class Voxels(NativeEnv):
    """Segmentation env: each cell sees a noisy feature and adjusts its object probability; all paid the final Dice.

    A line of `cells` with one object; the chance is that of belonging to it.

    In each of `rounds` every agent changes its chance by one of six steps. Reward: the Dice overlap, to all, at the
    end. facts, of each agent: ce and ce_after, its cross-entropy (nats) before and after the step; edge, how far it is
    from the boundary of the object. Success: Dice above .8.

    clicks: after each round a user who knows the object clicks where the error is largest, and says whether that is
    inside; all cells beside it with the same feature (a supervoxel) are shown the answer from then on.
    """

    facts = {"ce": float, "ce_after": float, "edge": float}

    def __init__(self, *, cells: int = 24, rounds: int = 5, noise: float = 1.0, clicks: bool = False) -> None:
        if cells < 8 or rounds < 1 or not noise >= 0:
            raise InputError(f"Voxels: {cells=} >= 8, {rounds=} >= 1, {noise=} not negative")
        self.cells, self.rounds, self.noise, self.clicks = cells, rounds, float(noise), clicks
        self.agents = tuple(f"cell_{number}" for number in range(cells))
        self.choices = tuple(f"{move:+}" for move in MOVES)

    def begin(self) -> tuple[str, _VoxelsState]:
        """Draw the object and the features."""
        number = int(self.rng.integers(2**31))
        self.rng = np.random.default_rng(number)
        first = int(self.rng.integers(self.cells // 8, self.cells // 2))
        last = first + int(self.rng.integers(self.cells // 5, self.cells * 7 // 16))
        cell = np.arange(self.cells)
        truth = (first <= cell) & (cell < last)
        seen = np.where(truth, 1.0, -1.0) + self.noise * self.rng.normal(size=self.cells)
        edge = np.minimum(np.abs(cell - first), np.abs(cell - last)).astype(float)
        return f"volume {number}", _VoxelsState(
            truth, np.digitize(seen, [-1.0, 0.0, 1.0]), edge, np.full(self.cells, 0.5), np.zeros(self.cells, int)
        )

    def look(self) -> dict[str, Observation]:
        """Each cell sees its own feature and chance, in tenths, and what a click told."""
        state = self.state
        if state.rounds >= self.rounds:
            return {}
        tenth = np.minimum((state.chance * 10).astype(int), 9)
        return {
            agent: Observation(f"feature {feature}, chance .{at}{TOLD[told]}", choices=self.choices)
            for agent, feature, at, told in zip(self.agents, state.feature, tenth, state.told, strict=True)
        }

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Change all cells' chances at once."""
        state = self.state
        before = self._loss()
        step = np.array([0.0 if (move := chosen[agent]) is None else MOVES[move] for agent in self.agents])
        state.chance = np.clip(state.chance + step, LEAST, 1 - LEAST)
        state.rounds += 1
        told = {"ce": before, "ce_after": self._loss(), "edge": state.edge}
        info: dict[str, Any] = {k: dict(zip(self.agents, v.tolist(), strict=True)) for k, v in told.items()}
        if self.clicks:
            self._click()
        if state.rounds < self.rounds:
            return {}, info
        found = state.chance > 0.5
        dice = float(2 * (found & state.truth).sum() / max(found.sum() + state.truth.sum(), 1))
        return dict.fromkeys(self.agents, dice), info | {"success": dice > 0.8}

    def _click(self) -> None:
        """Tell the supervoxel of the cell with the largest error where it belongs."""
        state = self.state
        first = last = clicked = int(np.abs(state.truth - state.chance).argmax())
        while first > 0 and state.feature[first - 1] == state.feature[last]:
            first -= 1
        while last < self.cells - 1 and state.feature[last + 1] == state.feature[first]:
            last += 1
        state.told[first : last + 1] = 1 if state.truth[clicked] else -1

    def _loss(self) -> np.ndarray:
        state = self.state
        return np.asarray(-np.log(np.where(state.truth, state.chance, 1 - state.chance)))
