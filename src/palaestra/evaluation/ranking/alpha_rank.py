"""alpha-Rank: how often evolution is found at each strategy or profile, cycles included (arXiv 1903.01373).

Equal to OpenSpiel's, but vectorised, and also right where its eigenvectors fail. Left out: symmetric games of more than
two players (heuristic payoff tables), and the mixed profiles between monomorphic ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from palaestra.errors import InputError, nearest
from palaestra.evaluation.ranking.stationary import stationary_distribution

Selection = Literal["local", "population"]
_TIE = 1e-14


def alpha_rank(
    payoffs: np.ndarray | Sequence[np.ndarray],
    *,
    alpha: float = math.inf,
    population: int = 50,
    epsilon: float = 0.01,
    selection: Selection = "local",
) -> np.ndarray:
    """Alpha-Rank: stationary distribution π over strategies (or profiles) from payoffs; larger is better.

    payoffs: float64[S, S], what the row gets against the column, of one population (π: float64[S]); or one tensor
    float64[S_1, …, S_K] per player for K populations (π: float64[S_1, …, S_K] over profiles). A batch float64[B, S, S]
    of one population is a three-dimensional array, and gives float64[B, S].

    From a profile, η = 1 / Σ_k (S_k - 1) picks a deviation of one player, which fixates with probability
    ρ = (1 - e^{-u}) / (1 - e^{-mu}), u = α · gain, m = `population`, and 1/m at u = 0. α infinite: η (1 - ε) to the
    better, η ε to the worse, η/2 between equals (to 1e-14; OpenSpiel's isclose takes a relative 1e-5 for equal).

    selection: in one population, "local" compares what the two get against each other; "population" is the fitness
    among m individuals that play everyone else (OpenSpiel's use_local_selection_model=False; finite α only).

    Raises:
        InputError: shapes, or options that do not go together.

    >>> alpha_rank(np.array([[.5, .6, .7], [.4, .5, .65], [.3, .35, .5]])).round(4).tolist()
    [0.9802, 0.0148, 0.005]
    >>> alpha_rank(np.array([[.5, .9, .2], [.1, .5, .8], [.8, .2, .5]])).round(4).tolist()
    [0.3333, 0.3333, 0.3333]
    """
    if selection not in ("local", "population"):
        raise InputError(f"alpha_rank: selection={selection!r}{nearest(str(selection), ('local', 'population'))}")
    if not (alpha > 0 and population > 1 and 0 < epsilon < 0.5):
        raise InputError(f"alpha_rank: alpha={alpha} > 0, population={population} > 1 and epsilon={epsilon} in (0, .5)")
    if not len(payoffs) or not all(np.isfinite(table).all() for table in payoffs):
        raise InputError(
            "alpha_rank: payoffs must be finite numbers, and there must be some; a pair that never met has none"
        )
    if isinstance(payoffs, np.ndarray) and payoffs.ndim in (2, 3):
        return _one_population(np.asarray(payoffs, float), alpha, population, epsilon, selection)
    tables = [np.asarray(table, float) for table in payoffs]
    shape = tables[0].shape if tables else ()
    if len(shape) != len(tables) or any(table.shape != shape for table in tables):
        raise InputError(f"alpha_rank: {len(tables)} players need tensors of {len(tables)} axes, not {shape}")
    if selection == "population":
        raise InputError("alpha_rank: several populations know only selection='local'")
    n = math.prod(shape)
    log_rates = np.full((n, n), -np.inf)
    ids = np.arange(n).reshape(shape)
    for k, table in enumerate(tables):
        profiles = np.moveaxis(ids, k, -1).reshape(-1, shape[k])
        values = table.reshape(-1)[profiles]
        gain = values[:, None, :] - values[:, :, None]  # from the profile of axis 1 to that of axis 2
        log_rates[profiles[:, :, None], profiles[:, None, :]] = _log_step(gain, alpha, population, epsilon)
    return stationary_distribution(log_rates).reshape(shape)


def _one_population(
    payoffs: np.ndarray, alpha: float, population: int, epsilon: float, selection: Selection
) -> np.ndarray:
    if payoffs.shape[-1] != payoffs.shape[-2]:
        raise InputError(
            f"alpha_rank: one population needs a square matrix, not {payoffs.shape}; else give one tensor "
            "per player as a list"
        )
    against = np.swapaxes(payoffs, -1, -2)  # [s, r]: what a mutant r gets against s
    if selection == "local":
        return stationary_distribution(_log_step(against - payoffs, alpha, population, epsilon))
    if math.isinf(alpha):
        raise InputError("alpha_rank: selection='population' is for finite alpha")
    own = np.einsum("...ii->...i", payoffs)
    m = population
    total, steps = np.zeros_like(payoffs), np.zeros_like(payoffs)
    for r in range(1, m):  # how many mutants there are: fitness of each kind among the m - 1 others
        mutant = ((r - 1) * own[..., None, :] + (m - r) * against) / (m - 1)
        resident = ((m - r - 1) * own[..., :, None] + r * payoffs) / (m - 1)
        steps = steps - alpha * (mutant - resident)
        total = np.logaddexp(total, steps)
    return stationary_distribution(-total)


def _log_step(gain: np.ndarray, alpha: float, population: int, epsilon: float) -> np.ndarray:
    """Log of the chance that a deviation with this gain fixates."""
    if math.isinf(alpha):
        better = np.where(gain > 0, math.log1p(-epsilon), math.log(epsilon))
        return np.where(np.abs(gain) <= _TIE, math.log(0.5), better)
    u = alpha * gain
    m, size = population, np.maximum(np.abs(u), _TIE)
    loss = np.log(-np.expm1(-size)) - np.log(-np.expm1(-m * size))
    rho = np.where(u > 0, loss, loss - (m - 1) * size)
    return np.where(np.abs(u) <= _TIE, -math.log(m), rho)


def marginals(profiles: np.ndarray) -> list[np.ndarray]:
    """List of each player's own distribution float64[S_k], from a distribution over profiles float64[S_1, …, S_K]."""
    axes = range(profiles.ndim)
    return [np.asarray(profiles.sum(axis=tuple(a for a in axes if a != k))) for k in axes]
