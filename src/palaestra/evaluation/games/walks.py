"""Self-repellent random walks: the next site (task, opponent, agent) is less likely the more often it was visited.

Doshi, Hu and Eun 2023 for the walk, ICLR 2024 (SA-SRRW) for optimisation driven by it. Left out: base chains that are
not reversible.
"""

from __future__ import annotations

import numpy as np
import scipy

from palaestra.errors import InputError


def metropolis(adjacent: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Metropolis-Hastings transition matrix on a graph with stationary distribution `target`, float64[n, n].

    Proposes a neighbour evenly and takes it with probability min(1, target_j degree_i / (target_i degree_j)).

    Args:
        adjacent: bool[n, n], symmetric.
        target: float64[n], positive, adds up to 1.

    Raises:
        InputError: the graph is not symmetric or not connected, or the target is no distribution.
    """
    adjacent, target = np.asarray(adjacent, bool) & ~np.eye(len(target), dtype=bool), np.asarray(target, float)
    if adjacent.shape != (len(target),) * 2 or (adjacent != adjacent.T).any():
        raise InputError(f"metropolis: a symmetric matrix of {len(target)} sites is needed, not {adjacent.shape}")
    if not (np.isfinite(target).all() and (target > 0).all() and abs(target.sum() - 1) < 1e-6):
        raise InputError("metropolis: the target must be positive and add up to 1")
    if scipy.sparse.csgraph.connected_components(adjacent, directed=False)[0] > 1:
        raise InputError("metropolis: the graph is not connected, so some sites would never be visited")
    degree = adjacent.sum(axis=1)
    accept = np.minimum(1.0, (target / degree)[None, :] * (degree / target)[:, None])
    chain = np.where(adjacent, accept / degree[:, None], 0.0)
    np.fill_diagonal(chain, 1 - chain.sum(axis=1))
    return chain


class SelfRepellentSampler:
    """Sampler of sites by parallel self-repellent walks: K_ij ∝ base_ij (x_j / target_j)^-alpha, x a walk's visits.

    Args:
        target: μ, float64[n].
        alpha: strength; 0 is the base chain.
        base: transition matrix P with stationary distribution μ, reversible; None: an independent draw from μ, which
            with α > 0 is a sampler of low variance over a list of tasks or opponents.
        walks: how many.
        seed: of the draws.
        decay: the visit measure moves by (n + 1)^-decay; 1 is the plain share of visits.
    """

    def __init__(
        self,
        target: np.ndarray,
        alpha: float,
        base: np.ndarray | None = None,
        *,
        walks: int = 1,
        seed: int = 0,
        decay: float = 1.0,
    ) -> None:
        self.target = np.asarray(target, float)
        n = len(self.target)
        chain = np.tile(self.target, (n, 1)) if base is None else np.asarray(base, float)
        if chain.shape != (n, n) or not np.allclose(self.target @ chain, self.target, atol=1e-9):
            raise InputError("SelfRepellentSampler: the target is not stationary for the base chain")
        if not 0 <= alpha < np.inf:
            raise InputError(f"SelfRepellentSampler: alpha={alpha} must be a finite number >= 0")
        with np.errstate(divide="ignore"):
            self._log_chain = np.log(chain)
        self.alpha, self.decay, self.steps = alpha, decay, 0
        self._rng = np.random.default_rng(seed)
        self.at = self._rng.choice(n, walks, p=self.target / self.target.sum())
        self.measure = np.full((walks, n), 1 / n)

    def next(self) -> np.ndarray:
        """Moves each walk one step, updates its visit measure; returns the sites reached, int64[walks]."""
        logs = self._log_chain[self.at] - self.alpha * (np.log(self.measure) - np.log(self.target))
        noise = self._rng.gumbel(size=logs.shape)
        self.at = (logs + noise).argmax(axis=1)
        self.steps += 1
        rate = (self.steps + 1.0) ** -self.decay
        self.measure *= 1 - rate
        self.measure[np.arange(len(self.at)), self.at] += rate
        return self.at


def sampling_variance(values: np.ndarray, sampler: SelfRepellentSampler, steps: int) -> tuple[np.ndarray, float]:
    """Runs a `SelfRepellentSampler` `steps` times: (visits float64[walks, n], steps · variance of `values`' averages).

    The variance is that over walks.
    """
    values = np.asarray(values, float) - sampler.target @ np.asarray(values, float)
    visits = np.zeros(sampler.measure.shape)
    rows = np.arange(len(visits))
    for _ in range(steps):
        visits[rows, sampler.next()] += 1
    return visits, float(steps * np.var(visits @ values / steps, ddof=1))


def descend(values: np.ndarray, sampler: SelfRepellentSampler, steps: int, exponent: float = 0.9) -> float:
    """Variance over walks / last rate after `steps` of θ += rate · (values[site] - θ), sites of `SelfRepellentSampler`.

    A float; the rate falls.
    Sites come from the sampler; the rate is (n+1)^-exponent.

    `sampler.decay` < `exponent` lets the visit measure move faster than the iterate, which makes the variance
    O(1/α²) instead of O(1/α). The variance is scaled by the last step size in the place of 1 / T.
    """
    values = np.asarray(values, float) - sampler.target @ np.asarray(values, float)
    theta = np.zeros(len(sampler.at))
    rate = 1.0
    for n in range(steps):
        rate = (n + 2.0) ** -exponent
        theta += rate * (values[sampler.next()] - theta)
    return float(np.var(theta, ddof=1) / rate)
