"""How far gradient descent on a network is from the kernel regression that it follows while it is wide ([151])."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from palaestra.learning.score_models.denoising import ScoreModel


def tangent_features(network: nn.Module, x: Tensor) -> Tensor:
    """Gradients ∂F_0(x) / ∂θ of a network's first output, float64[rows, parameters]: features of its tangent kernel."""
    parameters: dict[str, Tensor] = dict(network.named_parameters())

    def first(values: dict[str, Tensor], row: Tensor) -> Tensor:
        found: Tensor = torch.func.functional_call(network, values, (row[None],))[0, 0]
        return found

    with torch.enable_grad():
        by_name = torch.func.vmap(torch.func.grad(first), (None, 0))(parameters, x)
    return torch.cat([each.reshape(len(x), -1) for each in by_name.values()], 1).detach()


def kernel_descent(kernel: Tensor, between: Tensor, error: Tensor, *, lr: float, steps: int) -> Tensor:
    """Change of predictions by kernel gradient descent: `between` K⁻¹ (I - (I - `lr` K)^`steps`) `error`, K = `kernel`.

    Args:
        kernel: K of the rows that are learned from, float64[n, n].
        between: K_* of other rows with these, float64[m, n].
        error: y - f_0, float64[n].
        lr: η, of the sum of ½ (f - y)².
        steps: of gradient descent.

    Example:
        >>> eye = torch.eye(1, dtype=torch.double)
        >>> kernel_descent(2 * eye, eye, torch.ones(1, dtype=torch.double), lr=0.25, steps=2).tolist()
        [0.375]
    """
    values, vectors = torch.linalg.eigh(kernel)
    values = values.clamp(min=0.0)
    kept = -torch.expm1(steps * torch.log1p(-(lr * values).clamp(max=1 - 1e-12)))
    share = torch.where(values > 1e-12, kept / values.clamp(min=1e-12), lr * steps)
    found: Tensor = between @ (vectors @ (share * (vectors.T @ error)))
    return found


def kernel_distance(samples: np.ndarray, width: int, *, steps: int = 50, rows: int = 40, seed: int = 0) -> float:
    """Trains a `width` network on noised `samples` [n, d]: how far its change is from its kernel's, over the latter.

    Both learn a_t z - σ_t x_0 of the first coordinate, the label of the network's output, from `rows` noised samples,
    and are compared at as many others. The kernel is taken at the network's start. The distance falls with the width.

    Args:
        samples: float64[n, d], scaled.
        width: of both hidden layers.
        steps: of gradient descent, at a rate of 1 over the kernel's largest eigenvalue.
        rows: noised samples to learn from, and others to compare at.
        seed: of the network and the noise.
    """
    rng = np.random.default_rng(seed)
    model = ScoreModel(samples.shape[1], hidden=(width, width), seed=seed)
    x0, t, z = model._noised(samples[rng.integers(len(samples), size=2 * rows)], rng, 1)
    scale, noise = model.schedule.scale(t)[:, None], model.schedule.noise(t)[:, None]
    xt = scale * x0 + noise * z
    seen, goal = torch.cat([xt, model._time(t)], 1), (scale * z - noise * x0)[:, 0]
    network, known, other = model.network, seen[:rows], seen[rows:]
    features, others = tangent_features(network, known), tangent_features(network, other)
    kernel = features @ features.T
    lr = 1 / float(torch.linalg.eigvalsh(kernel)[-1])
    with torch.no_grad():
        start, before = network(known)[:, 0], network(other)[:, 0]
    predicted = kernel_descent(kernel, others @ features.T, goal[:rows] - start, lr=lr, steps=steps)
    optimiser = torch.optim.SGD(network.parameters(), lr=lr)
    for _ in range(steps):
        optimiser.zero_grad()
        (0.5 * (network(known)[:, 0] - goal[:rows]).square().sum()).backward()
        optimiser.step()
    with torch.no_grad():
        changed = network(other)[:, 0] - before
    return float((changed - predicted).norm() / predicted.norm())
