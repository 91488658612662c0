"""`Discs`: walkers on a square with a wall; two small discs pay, all else does not. Where reward is hard to find.

Walkers neither see nor hinder each other: a seat is one candidate of a search over policies. Modelled after the sparse
settings of arXiv 2203.01027; geometry and sensors are this package's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

HEADINGS = 24
START = np.array([0.5, 0.15])
CENTRES = np.array([[0.85, 0.8], [0.1, 0.55]])
"""Of the discs."""
WALL = (0.45, 0.3, 1.0)
"""Height of the wall, and from where to where it goes."""


def moved(places: np.ndarray, headings: np.ndarray, stride: float, count: int = HEADINGS) -> np.ndarray:
    """New positions [n, 2] after a step `stride` by heading (0 right, counter-clockwise); wall and edges stop it.

    Headings are numbered 0 … `count` - 1. A walker that would cross the wall stays, at an edge it stops.

    >>> moved(np.array([[0.5, 0.4], [0.1, 0.4]]), np.array([6, 6]), 0.1).round(2).tolist()
    [[0.5, 0.4], [0.1, 0.5]]
    """
    angle = 2 * np.pi * headings / count
    after = np.clip(places + stride * np.stack([np.cos(angle), np.sin(angle)], 1), 0, 1)
    height, left, right = WALL
    below, above = np.minimum(places[:, 1], after[:, 1]), np.maximum(places[:, 1], after[:, 1])
    share = (height - places[:, 1]) / np.where(after[:, 1] == places[:, 1], 1, after[:, 1] - places[:, 1])
    across = places[:, 0] + share * (after[:, 0] - places[:, 0])
    hit = (below < height) & (above >= height) & (left <= across) & (across <= right)
    return np.where(hit[:, None], places, after)


def paid(places: np.ndarray, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """Pair for places [n, 2]: reward 1 - √(distance / radius) in a disc, else 0, and the disc's number, -1 outside."""
    away = np.linalg.norm(places[:, None] - CENTRES, axis=2)
    near = away.argmin(1)
    reward = np.maximum(1 - np.sqrt(away.min(1) / radius), 0.0)
    return reward, np.where(reward > 0, near, -1)


def sensed(places: np.ndarray, sensors: int, rng: np.random.Generator, flicker: int) -> np.ndarray:
    """Sensor features of `places` [n, 2], float64[n, sensors² + flicker]: Gaussian bumps on a lattice, random numbers.

    Bumps are exp(-d²/.045) around a `sensors` × `sensors` lattice.
    """
    axis = (np.arange(sensors) + 0.5) / max(sensors, 1)
    lattice = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    bumps = np.exp(-((places[:, None] - lattice) ** 2).sum(2) / 0.045)
    return np.hstack([bumps, rng.random((len(places), flicker))])


@dataclass
class _DiscsState:
    places: np.ndarray
    step: int = 0


@ENVS.register("native/discs")
class Discs(NativeEnv):
    """Plane env: walkers choose headings for `steps` steps; paid at the end by closeness to a centre within two discs.

    Steps have length `stride`.

    Observation array: x, y and the share of steps that are left. facts: x, y and disc, the place of each walker after
    its step and the disc that it stands in, -1 for none; view, after the last step, `sensors`² sensors of that place
    and `flicker` numbers that mean nothing. Success: it stands in a disc at the end.

    Args:
        walkers: seats. steps: of an episode. stride: length of a step. radius: of the discs.
        sensors: on each side of a lattice of sensors. flicker: sensors of chance.

    Raises:
        InputError: a number is out of range.
    """

    facts = {"x": float, "y": float, "disc": int, "view": list[float]}

    def __init__(
        self,
        *,
        walkers: int = 44,
        steps: int = 12,
        stride: float = 0.12,
        radius: float = 0.08,
        sensors: int = 0,
        flicker: int = 0,
        headings: int = HEADINGS,
    ) -> None:
        if walkers < 1 or headings < 2 or steps < 1 or not stride > 0 or not radius > 0 or sensors < 0 or flicker < 0:
            raise InputError(
                f"Discs: walkers={walkers} and steps={steps} at least 1, stride={stride} and radius={radius} above 0, "
                f"sensors={sensors} and flicker={flicker} not negative, headings={headings} at least 2"
            )
        self.steps, self.stride, self.radius, self.sensors, self.flicker = steps, stride, radius, sensors, flicker
        self.headings, self.moves = headings, tuple(f"{360 * at / headings:g} degrees" for at in range(headings))
        self.agents = tuple(f"walker_{number}" for number in range(walkers))

    def begin(self) -> tuple[str, _DiscsState]:
        """Start with all walkers at the start."""
        return "discs", _DiscsState(np.tile(START, (len(self.agents), 1)))

    def _senses(self) -> np.ndarray:
        return sensed(self.state.places, self.sensors, self.rng, self.flicker)

    def look(self) -> dict[str, Observation]:
        """Each walker sees its own place and the share of steps left."""
        state = self.state
        if state.step == self.steps:
            return {}
        left = np.full((len(state.places), 1), 1 - state.step / self.steps)
        arrays = np.hstack([state.places, left]).astype(np.float32)
        return {
            agent: Observation(f"at {x:.3f} {y:.3f}, {self.steps - state.step} steps left", self.moves, array=array)
            for agent, (x, y), array in zip(self.agents, state.places.tolist(), arrays, strict=True)
        }

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Move all walkers at once; an invalid choice goes to the right."""
        state = self.state
        headings = np.array([chosen[agent] or 0 for agent in self.agents])
        state.places, state.step = moved(state.places, headings, self.stride, self.headings), state.step + 1
        reward, disc = paid(state.places, self.radius)
        told: dict[str, Any] = {
            name: dict(zip(self.agents, values, strict=True))
            for name, values in (
                ("x", state.places[:, 0].tolist()),
                ("y", state.places[:, 1].tolist()),
                ("disc", disc.tolist()),
            )
        }
        if state.step < self.steps:
            return {}, told
        if self.sensors or self.flicker:
            told["view"] = dict(zip(self.agents, self._senses().tolist(), strict=True))
        told["success"] = dict(zip(self.agents, (reward > 0).tolist(), strict=True))
        return dict(zip(self.agents, reward.tolist(), strict=True)), told
