"""`Kuramoto`: oscillators on a circle that see their own phase alone, and turn to be in phase with the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

TURNS = ("back", "stay", "on")


@dataclass
class _KuramotoState:
    phases: np.ndarray
    drift: np.ndarray
    seen: np.ndarray
    step: int = 0


@ENVS.register("native/kuramoto")
class Kuramoto(NativeEnv):
    """Env of coupled oscillators: each sees its phase and turns it; all are paid the step's gain in synchrony.

    `number` oscillators, `horizon` steps.

    A phase is in half turns, from -1 to 1, which is the same place. In a step it changes by `speed` times the choice
    (-1, 0 or 1), by a natural frequency, normal with deviation `drift`, and by the coupling of Kuramoto,
    `coupling` · mean_j sin(π(φ_j - φ_i)). The order parameter is r = |mean_j exp(iπφ_j)|; the reward of all is what a
    step adds to it. An episode begins with phases that are normal with deviation `spread` around a place that is drawn
    uniformly; with `modes` = 2 around one of two places that are half a turn apart, each oscillator drawn, the first
    three times as likely. A success is r of at least .8 at the end.

    An oscillator sees its own phase, with an error of deviation `noise`. The order of agents means nothing. `states()`
    is the whole population for an upper level (`mean_field`), exact. facts: order, r after the step.

    Raises:
        InputError: an option is out of range.
    """

    facts = {"order": float}
    period = 2.0
    """Length after which a phase comes again."""

    def __init__(
        self,
        *,
        number: int = 50,
        horizon: int = 5,
        speed: float = 0.12,
        spread: float = 0.3,
        coupling: float = 0.02,
        drift: float = 0.02,
        noise: float = 0.02,
        modes: int = 1,
    ) -> None:
        if number < 2 or horizon < 1 or min(speed, spread, coupling, drift, noise) < 0 or modes not in (1, 2):
            raise InputError(
                f"Kuramoto: number={number} must be at least 2, horizon={horizon} at least 1, modes={modes} 1 or 2; "
                f"speed={speed}, spread={spread}, coupling={coupling}, drift={drift} and noise={noise} at least 0"
            )
        self.horizon, self.speed, self.spread, self.coupling = horizon, speed, spread, coupling
        self.drift, self.noise, self.modes = drift, noise, modes
        self.agents: tuple[str, ...] = tuple(f"oscillator_{place}" for place in range(number))

    def begin(self) -> tuple[str, _KuramotoState]:
        """Draw the phases around a centre."""
        size, centre = len(self.agents), self.rng.uniform(-1, 1)
        other = (self.rng.random(size) < 0.25) * (self.modes == 2)
        phases = wrapped(centre + other + self.rng.normal(0, self.spread, size))
        drift = self.rng.normal(0, self.drift, size)
        return f"around {float(centre)!r}", _KuramotoState(phases, drift, self._read(phases))

    def states(self) -> np.ndarray:
        """Phase of every oscillator, float64[number, 1]."""
        return np.asarray(self.state.phases[:, None])

    def look(self) -> dict[str, Observation]:
        """Each oscillator sees its own phase, with noise."""
        if self.state.step == self.horizon:
            return {}
        seen = self.state.seen
        return {
            agent: Observation(f"phase {phase:.3f}", TURNS, array=seen[place : place + 1])
            for place, (agent, phase) in enumerate(zip(self.agents, seen.tolist(), strict=True))
        }

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Turn all oscillators at once; an invalid choice stays."""
        state = self.state
        before = order(state.phases)
        moves = np.array([1 if found is None else found for found in map(chosen.get, self.agents)]) - 1
        field = np.exp(1j * np.pi * state.phases)
        pull = (np.conj(field) * field.mean()).imag
        state.phases = wrapped(state.phases + self.speed * moves + state.drift + self.coupling * pull)
        state.seen, state.step = self._read(state.phases), state.step + 1
        after = order(state.phases)
        info: dict[str, Any] = {"order": after}
        if state.step == self.horizon:
            info["success"] = after >= 0.8
        return dict.fromkeys(self.agents, after - before), info

    def _read(self, phases: np.ndarray) -> np.ndarray:
        return wrapped(phases + self.rng.normal(0, self.noise, len(phases))).astype(np.float32)


def wrapped(phases: np.ndarray) -> np.ndarray:
    """Phases wrapped to [-1, 1), in half turns."""
    return np.asarray((phases + 1) % 2 - 1)


def order(phases: np.ndarray) -> float:
    """Order parameter r = |mean exp(iπφ)| of phases in half turns, from 0 to 1.

    >>> round(order(np.array([0.0, 0.5])), 4), round(order(np.array([-1.0, 0.0])), 4)
    (0.7071, 0.0)
    """
    return float(np.abs(np.exp(1j * np.pi * phases).mean()))
