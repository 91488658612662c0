"""Nash averaging: rating by the equilibrium of largest entropy, so that copies of a player or task change nothing.

Left out: general-sum games, where equilibria are not convex.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from palaestra.errors import InputError


class NashAverage(NamedTuple):
    """Result of Nash averaging: equilibrium mixtures, and the skill of each row and column against them.

    equilibrium: mixtures of rows and of columns. skill: expected payoff of each row, and of each column, in it.
    """

    equilibrium: tuple[np.ndarray, np.ndarray]
    skill: tuple[np.ndarray, np.ndarray]


def nash_averaging(payoffs: np.ndarray) -> NashAverage:
    """`NashAverage` (arXiv 1806.02643) of a zero-sum game, float64[rows, columns] of the row's payoffs.

    Agents against agents: an antisymmetric matrix (e.g. log-odds of win rates); both sides are then the same. Agents
    against tasks: scores with each task scaled to [0, 1] first (`scale_tasks`), the tasks being the other player.

    >>> found = nash_averaging(np.array([[0.0, 1, -1], [-1, 0, 1], [1, -1, 0]]))
    >>> found.equilibrium[0].round(4).tolist()
    [0.3333, 0.3333, 0.3333]
    """
    payoffs = np.asarray(payoffs, float)
    if payoffs.ndim != 2 or not payoffs.size or not np.isfinite(payoffs).all():
        raise InputError(f"nash_averaging: payoffs must be finite numbers [rows, columns], not {payoffs.shape}")
    rounding = 1e-12 * np.abs(payoffs).max()
    if payoffs.shape[0] == payoffs.shape[1] and np.allclose(payoffs, -payoffs.T, rtol=0, atol=rounding):
        x = y = _largest_entropy(payoffs)
    else:
        game = (payoffs - payoffs.min()) / (float(np.ptp(payoffs)) or 1.0)  # tolerances of the solvers are absolute
        value = _value(game)
        x, y = _largest_entropy(value - game.T), _largest_entropy(game - value)
    return NashAverage((x, y), (payoffs @ y, -payoffs.T @ x))


def scale_tasks(scores: np.ndarray) -> np.ndarray:
    """Scores [systems, tasks] with each column min-max scaled onto [0, 1]; a constant column becomes 0."""
    low, high = scores.min(0), scores.max(0)
    return np.asarray((scores - low) / np.where(high > low, high - low, 1.0))


def _value(payoffs: np.ndarray) -> float:
    rows, columns = payoffs.shape
    found = scipy.optimize.linprog(
        np.append(np.zeros(rows), -1.0),
        A_ub=np.hstack([-payoffs.T, np.ones((columns, 1))]),
        b_ub=np.zeros(columns),
        A_eq=np.append(np.ones(rows), 0.0)[None],
        b_eq=[1.0],
        bounds=[(0, None)] * rows + [(None, None)],
        method="highs",
    )
    return float(found.x[-1])


def _largest_entropy(a: np.ndarray) -> np.ndarray:
    """Argmax of the entropy over {x >= 0, Σx = 1, a x <= 0}.

    One linear program finds which x can be positive and which rows can be slack (Goldman & Tucker: a sum of solutions
    keeps what any of them has); on that face the dual, min over λ of log Σ exp(-aᵀλ), is smooth and has a minimum.
    """
    scale = float(np.abs(a).max()) or 1.0
    a = a / scale
    rows, n = a.shape
    found = scipy.optimize.linprog(
        -np.concatenate([np.zeros(n), np.ones(n + rows)]),
        A_ub=np.block([[-np.eye(n), np.eye(n), np.zeros((n, rows))], [a, np.zeros((rows, n)), np.eye(rows)]]),
        b_ub=np.concatenate([np.zeros(n), np.full(rows, 1e-9)]),
        bounds=[(0, 1e6)] * n + [(0, 1)] * (n + rows),
        method="highs",
    )
    live, slack = found.x[n : 2 * n] > 0.5, found.x[2 * n :] > 0.5
    part = a[:, live]
    bounds = [(0, None) if free else (None, None) for free in slack]

    def dual(multipliers: np.ndarray) -> tuple[float, np.ndarray]:
        logits = -multipliers @ part
        total = scipy.special.logsumexp(logits)
        return float(total), -part @ np.exp(logits - total)

    options = {"maxiter": 20_000, "maxfun": 50_000, "ftol": 1e-16, "gtol": 1e-10, "maxcor": 30}
    solved = scipy.optimize.minimize(dual, np.zeros(rows), jac=True, bounds=bounds, method="L-BFGS-B", options=options)
    logits = -solved.x @ part
    x = np.zeros(n)
    x[live] = np.exp(logits - scipy.special.logsumexp(logits))
    return x
