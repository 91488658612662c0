"""`Denoise`: a sampler that makes a number out of noise in steps, which a policy may push. Where one fine-tunes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError


@dataclass
class _DenoiseState:
    x: float
    step: int = 0


@ENVS.register("native/denoise")
class Denoise(NativeEnv):
    """Diffusion sampling env: `sampler` pushes x in each of `steps` noisy steps; paid -(x - 1)² at the end.

    From N(0, 1) noise to one of the modes -1 and 1 of the data. Episodes of one group share their noise: they differ by
    their pushes alone, so many samples need many groups.

    A step is x + .3·(tanh(3x) - x) + N(0, `noise`²) + push, push one of -`push`, 0, `push`: pushes of equal chance
    leave the sampler nearly as it is. Seen: the step, and x to the nearest quarter. facts: sample, what came out, on
    the last turn. Success: it is within .5 of 1.
    """

    agents: tuple[str, ...] = ("sampler",)
    facts = {"sample": float}

    def __init__(self, *, steps: int = 10, noise: float = 0.1, push: float = 0.2) -> None:
        if steps < 1 or not noise >= 0 or not push > 0:
            raise InputError(f"Denoise: steps={steps} at least 1, noise={noise} not negative, push={push} above 0")
        self.steps, self.noise, self.push = steps, float(noise), float(push)
        self.choices = ("down", "as it is", "up")

    def begin(self) -> tuple[str, _DenoiseState]:
        """Draw the starting noise, which all episodes of a group share, as they do the noise of their steps."""
        start = float(self.rng.normal())
        return f"denoise {start!r}", _DenoiseState(start)

    def look(self) -> dict[str, Observation]:
        """Observation of the sampler: the step, and x rounded to quarters."""
        if self.state.step == self.steps:
            return {}
        x = round(float(np.clip(self.state.x, -2, 2)) * 4) / 4
        return {"sampler": Observation(f"step {self.state.step}, x {x:+.2f}", choices=self.choices)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Make a step of the sampler; an invalid choice pushes nothing."""
        state, choice = self.state, chosen["sampler"]
        pushed = (choice - 1) * self.push if isinstance(choice, int) else 0.0
        state.x += 0.3 * (float(np.tanh(3 * state.x)) - state.x) + self.noise * float(self.rng.normal()) + pushed
        state.step += 1
        if state.step < self.steps:
            return {}, {}
        return {"sampler": -((state.x - 1) ** 2)}, {"sample": state.x, "success": abs(state.x - 1) < 0.5}
