"""Denoising score matching: ∇ log p_t of noised samples, learned from the noise that was added ([151])."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from palaestra.errors import InputError
from palaestra.learning.early_stopping import EarlyStopping

Score = Callable[[Tensor, Tensor], Tensor]
"""From x_t, float64[rows, d], and t, float64[rows], to ∇ log p_t(x_t), float64[rows, d]."""


@dataclass(frozen=True)
class NoiseSchedule:
    """Noise schedule x_t = a_t x_0 + σ_t z, a_t = e^{-t} and σ_t² = 1 - a_t²: the Ornstein-Uhlenbeck process.

    Attributes:
        first, last: least and largest time; at the last one hardly anything is left of x_0.

    Example:
        >>> schedule = NoiseSchedule()
        >>> [round(float(each(torch.tensor(0.5))), 4) for each in (schedule.scale, schedule.noise)]
        [0.6065, 0.7951]
    """

    first: float = 0.005
    last: float = 3.0

    def scale(self, t: Tensor) -> Tensor:
        """Signal scale a_t at times t."""
        return torch.exp(-t)

    def noise(self, t: Tensor) -> Tensor:
        """Noise level σ_t at times t."""
        return torch.sqrt(-torch.expm1(-2 * t))

    def draw(self, n: int, rng: np.random.Generator) -> Tensor:
        """Random times, uniform in log t; float64[n]."""
        low, high = np.log(self.first), np.log(self.last)
        return torch.from_numpy(np.exp(rng.uniform(low, high, n)))

    def grid(self, steps: int) -> Tensor:
        """Falling times from the last to the first, equally far apart in log t; float64[steps + 1]."""
        return torch.from_numpy(np.geomspace(self.last, self.first, steps + 1))


def denoising_target(z: Tensor, noise: Tensor) -> Tensor:
    """Denoising target -`z` / `noise` (σ_t), an unbiased and noisy label of ∇ log p_t(x_t); float64[rows, d]."""
    return -z / noise[:, None]


def denoising_losses(score: Score, x0: Tensor, t: Tensor, z: Tensor, schedule: NoiseSchedule) -> Tensor:
    """Denoising loss of function `score` per row of samples `x0` noised by `z` at `t`: σ_t² ‖s(x_t, t) + z / σ_t‖² / d.

    The weight σ_t² gives every time the same share: without it the least noise, whose labels are huge, would be all
    that is learned.

    Args:
        score: s.
        x0: samples, float64[rows, d].
        t: times, float64[rows].
        z: normal noise, float64[rows, d].
        schedule: of the noise.
    """
    noise = schedule.noise(t)
    xt = schedule.scale(t)[:, None] * x0 + noise[:, None] * z
    weight = noise**2
    return weight * (score(xt, t) - denoising_target(z, noise)).square().mean(1)


@dataclass(frozen=True)
class ScoreFit:
    """Result of fitting a score model: steps made, step kept, held-out losses.

    Attributes:
        steps: steps that were made. kept: step whose parameters were kept.
        losses: held-out loss of every look; empty without held-out samples. least: of the kept parameters.
    """

    steps: int
    kept: int
    losses: tuple[float, ...]
    least: float


class ScoreModel:
    """Diffusion score model: one network of ∇ log p_t for all times, s(x, t) = -x - a_t F(x, t) / σ_t.

    F = 0, the start, is the score of a standard normal; samples should have means 0 and deviations 1 (`Prior` scales
    them). What F has to be is a_t z - σ_t x_0 on average, of one size at all times. F sees x, a_t, σ_t and log σ_t.

    Args:
        dims: d. hidden: widths of the layers between. seed: of the start. schedule: of the noise.
    """

    def __init__(
        self, dims: int, *, hidden: Sequence[int] = (128, 128), seed: int = 0, schedule: NoiseSchedule | None = None
    ) -> None:
        self.schedule = schedule or NoiseSchedule()
        sizes = [dims + 3, *hidden]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            layers = [each for a, b in itertools.pairwise(sizes) for each in (nn.Linear(a, b), nn.SiLU())]
            self.network = nn.Sequential(*layers, nn.Linear(sizes[-1], dims)).double()
        for parameter in self.network[-1].parameters():
            nn.init.zeros_(parameter)

    def __call__(self, x: Tensor, t: Tensor) -> Tensor:
        """Score ∇ log p_t(x), float64[rows, d]."""
        size = self.schedule.scale(t) / self.schedule.noise(t)
        found: Tensor = -x - size[:, None] * self.network(torch.cat([x, self._time(t)], 1))
        return found

    def _time(self, t: Tensor) -> Tensor:
        noise = self.schedule.noise(t)
        return torch.stack([self.schedule.scale(t), noise, torch.log(noise)], 1)

    def fit(
        self,
        samples: np.ndarray,
        rng: np.random.Generator,
        *,
        steps: int = 3000,
        batch: int = 256,
        lr: float = 2e-3,
        draws: int | None = None,
        held_out: float = 0.2,
        patience: int | None = 10,
        every: int = 50,
    ) -> ScoreFit:
        """Train by Adam on denoising losses; the parameters of the least held-out loss are kept.

        Args:
            samples: float64[n, d].
            rng: draws batches and noise.
            steps: of Adam, at most.
            batch: rows of a step.
            lr: learning rate.
            draws: noise and times are drawn so often for each sample, once for all; None: anew in every step.
            held_out: share of the samples on which the fit is looked at, each with 32 draws that stay the same; 0: no
                look, the last step stays.
            patience: looks without improvement after which it stops; None: never.
            every: steps between looks.

        Raises:
            InputError: held_out leaves no sample to learn from, or none to look at.
        """
        order = rng.permutation(len(samples))
        aside = round(held_out * len(samples))
        if aside >= len(samples) or (held_out > 0 and not aside):
            raise InputError(
                f"ScoreModel: {held_out=} of {len(samples)} samples is {aside}; some must stay on each side"
            )
        looked = self._noised(samples[order[:aside]], rng, 32)
        known = torch.from_numpy(np.asarray(samples, float)[order[aside:]])
        fixed = None if draws is None else self._noised(samples[order[aside:]], rng, draws)
        optimiser = torch.optim.Adam(self.network.parameters(), lr=lr)
        stopping, losses, done = EarlyStopping(patience), [], 0
        for step in range(steps):
            if fixed is None:
                x0 = known[torch.from_numpy(rng.integers(len(known), size=batch))]
                rows = (x0, self.schedule.draw(batch, rng), torch.from_numpy(rng.normal(size=x0.shape)))
            else:
                at = torch.from_numpy(rng.integers(len(fixed[0]), size=batch))
                rows = (fixed[0][at], fixed[1][at], fixed[2][at])
            optimiser.zero_grad()
            denoising_losses(self, *rows, self.schedule).mean().backward()
            optimiser.step()
            done = step + 1
            if aside and (done % every == 0 or done == steps):
                with torch.no_grad():
                    losses.append(float(denoising_losses(self, *looked, self.schedule).mean()))
                if stopping.look(done, losses[-1], self.network):
                    break
        if aside:
            stopping.restore(self.network)
        return ScoreFit(done, stopping.step if aside else done, tuple(losses), stopping.least)

    def _noised(self, samples: np.ndarray, rng: np.random.Generator, draws: int) -> tuple[Tensor, Tensor, Tensor]:
        x0 = torch.from_numpy(np.repeat(np.asarray(samples, float), draws, axis=0))
        return x0, self.schedule.draw(len(x0), rng), torch.from_numpy(rng.normal(size=tuple(x0.shape)))
