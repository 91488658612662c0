"""Fusion of several sources with one prior: the gradients of their likelihoods are added to its score ([153])."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from palaestra.errors import InputError
from palaestra.learning.score_models.denoising import NoiseSchedule, Score


@dataclass(frozen=True)
class Source:
    """Data: one noisy linear measurement y = H x + noise of the unknown x.

    Attributes:
        operator: H, float64[readings, d].
        reading: y, float64[readings].
        noise: standard deviation of the noise, above 0.
        weight: of its log-likelihood; 0 leaves the source out.
    """

    operator: np.ndarray
    reading: np.ndarray
    noise: float
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not (self.noise > 0 and self.weight >= 0) or np.shape(self.operator)[:1] != np.shape(self.reading):
            raise InputError(
                f"Source: noise={self.noise} must be above 0, weight={self.weight} at least 0, and the operator "
                f"{np.shape(self.operator)} have a row for each of the {np.shape(self.reading)} readings"
            )


def fuse(prior: Score, sources: Sequence[Source], schedule: NoiseSchedule) -> Score:
    """Makes a posterior score function (x_t, t) -> score: the `prior` score function's plus `Source`s' guidance.

    It is ∇ log p(x_t) + Σ_k w_k ∇ log N(y_k; H_k x̂_0(x_t), σ_k² + r_t²).

    x̂_0 = (x_t + σ_t² s(x_t, t)) / a_t is the expected sample. r_t² = σ_t² ‖h‖² / (σ_t² + a_t²) is how uncertain a
    reading of it still is, for a prior of variance 1: without it the gradients of a precise source are far too large
    while x_t is noise. The derivative of x̂_0 is taken through the score. Sources are added and dropped without another
    fit. The r_t² of readings that overlap are taken as independent, which pulls means by up to a third of a deviation;
    more `corrections` in `posterior_samples` take a part of it away.

    Source: arXiv 2506.22780, from its abstract; the term r_t² as in ΠGDM (Song et al. 2023), reconstructed.
    """
    parts = [
        (torch.from_numpy(np.asarray(each.operator, float)), torch.from_numpy(np.asarray(each.reading, float)), each)
        for each in sources
    ]

    def fused(x: Tensor, t: Tensor) -> Tensor:
        with torch.enable_grad():
            free = x.detach().requires_grad_()
            own = prior(free, t)
            scale, variance = schedule.scale(t)[:, None], schedule.noise(t)[:, None] ** 2
            expected = (free + variance * own) / scale
            pull = torch.zeros_like(expected)
            for operator, reading, source in parts:
                spread = variance / (variance + scale**2) * (operator**2).sum(1)
                error = (reading - expected @ operator.T) / (source.noise**2 + spread)
                pull = pull + source.weight * (error @ operator)
            (gradient,) = torch.autograd.grad(expected, free, pull.detach())
        return own.detach() + gradient

    return fused


def posterior_samples(
    score: Score,
    n: int,
    dims: int,
    rng: np.random.Generator,
    *,
    schedule: NoiseSchedule,
    steps: int = 100,
    corrections: int = 1,
    step_size: float = 0.1,
) -> np.ndarray:
    """Diffusion samples of x_0, float64[n, dims], by a `score` function and `NoiseSchedule`: ancestral, Langevin steps.

    Args:
        score: of x_t, a prior's or that of `fuse`.
        n: number of samples, whose spread is the uncertainty.
        dims: coordinates.
        rng: draws the noise.
        schedule: of the noise.
        steps: noise levels.
        corrections: Langevin steps after each.
        step_size: of a Langevin step, as a share of what a score of its size allows.
    """
    x = torch.from_numpy(rng.normal(size=(n, dims)))
    times = schedule.grid(steps)
    for now, then in itertools.pairwise(times):
        t, later = now.expand(n), then.expand(n)
        rest = (schedule.scale(now) / schedule.scale(then)) ** 2
        added = schedule.noise(now) ** 2 - rest * schedule.noise(then) ** 2
        x = (x + added * score(x, t)) / torch.sqrt(rest)
        x = x + torch.sqrt(added) * schedule.noise(then) / schedule.noise(now) * _normal(x, rng)
        for _ in range(corrections):
            slope = score(x, later)
            size = step_size * dims / slope.square().sum(1).mean().clamp(min=1e-12)
            x = x + size * slope + torch.sqrt(2 * size) * _normal(x, rng)
    last = times[-1].expand(n)
    return np.asarray(
        ((x + schedule.noise(last)[:, None] ** 2 * score(x, last)) / schedule.scale(last)[:, None]).numpy()
    )


def _normal(like: Tensor, rng: np.random.Generator) -> Tensor:
    return torch.from_numpy(rng.normal(size=tuple(like.shape)))


def kalman_fuse(mean: np.ndarray, covariance: np.ndarray, sources: Sequence[Source]) -> tuple[np.ndarray, np.ndarray]:
    """Pair (exact posterior mean, covariance) of a normal prior by `mean`, `covariance` given `Source`s; tests `fuse`.

    >>> one = Source(np.array([[1.0, 0.0]]), np.array([1.0]), 0.3)
    >>> found = kalman_fuse(np.zeros(2), np.array([[1.0, 0.8], [0.8, 1.0]]), [one])
    >>> found[0].round(4).tolist(), found[1].round(4).tolist()
    ([0.9174, 0.7339], [[0.0826, 0.0661], [0.0661, 0.4128]])
    """
    precision = np.linalg.inv(covariance)
    shifted = precision @ mean
    for each in sources:
        factor = each.weight / each.noise**2
        precision = precision + factor * each.operator.T @ each.operator
        shifted = shifted + factor * each.operator.T @ each.reading
    found = np.linalg.inv(precision)
    return found @ shifted, found
