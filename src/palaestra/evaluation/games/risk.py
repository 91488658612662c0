"""Risk-averse equilibrium: responses that give up expected payoff for less variance caused by the others.

arXiv 2205.15434, reconstructed from its abstract; the driving experiments are left out.
"""

from __future__ import annotations

import numpy as np

from palaestra.errors import InputError
from palaestra.evaluation.games.dynamics import Mixtures, uniform_mixtures
from palaestra.evaluation.games.game import Game


def risk_averse_response(mean: np.ndarray, cov: np.ndarray, lam: float) -> np.ndarray:
    """Mixed strategy x, float64[S], that maximises x·mean - lam xᵀ cov x over the simplex.

    Solved exactly by an active set: equality-constrained optima on growing and shrinking supports.

    Args:
        mean: expected payoff of each strategy, float64[S].
        cov: covariance of the payoffs of the strategies, float64[S, S], positive semidefinite.
        lam: weight of the variance, at least 0.

    >>> risk_averse_response(np.array([4.25, 2.95]), np.array([[10.6875, 0.7125], [0.7125, 0.0475]]), 0.1).round(4)
    array([0.6267, 0.3733])
    """
    if not 0 <= lam < np.inf:
        raise InputError(f"risk_averse: lam={lam} must be a finite number >= 0")
    n = len(mean)
    x = np.zeros(n)
    x[np.argmax(mean - lam * np.diag(cov))] = 1.0
    hessian = 2 * lam * cov
    scale = max(1.0, float(np.abs(mean).max()), float(np.abs(hessian).max()))
    ridge = 1e-12 * scale * np.eye(n)
    support, reached = x > 0, -np.inf
    for _ in range(100 * n):
        at = np.flatnonzero(support)
        system = np.ones((len(at) + 1, len(at) + 1))
        system[:-1, :-1] = (hessian + ridge)[np.ix_(at, at)]
        system[-1, -1] = 0.0
        target = np.linalg.lstsq(system, np.append(mean[at], 1.0), rcond=None)[0][:-1]
        if (target < 0).any():
            falling = target < 0
            step = (x[at] / np.where(falling, x[at] - target, 1.0))[falling].min()
            x[at] += step * (target - x[at])
            gone = at[falling & (x[at] <= 1e-12)]
            x[gone] = 0.0
            support[gone] = False
            continue
        x[:] = 0.0
        x[at] = target / target.sum()
        slope = mean - hessian @ x
        better = np.where(support, -np.inf, slope)
        worth = float(x @ (mean + slope)) / 2
        if better.max() <= x @ slope + 1e-9 * scale or worth <= reached + 1e-13 * scale:
            break
        reached = worth
        support[better.argmax()] = True
    return x


def moments(game: Game, player: int, others: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(mean float64[S], covariance float64[S, S]) of a player's payoffs in a `Game` over draws from `others`' mixtures.

    The variance of a return within a cell, where the game has it, adds to the diagonal: returns of two strategies are
    played in different episodes.
    """
    weight = np.ones(1)
    for x in others:
        weight = np.multiply.outer(weight, x).ravel()
    size = game.shape[player]
    table = np.moveaxis(game.payoffs[player], player, 0).reshape(size, -1)
    mean = table @ weight
    cov = (table * weight) @ table.T - np.outer(mean, mean)
    if game.variance is not None:
        cov = cov + np.diag(np.moveaxis(game.variance[player], player, 0).reshape(size, -1) @ weight)
    return mean, cov


def tremble_mixture(x: np.ndarray, tremble: float) -> np.ndarray:
    """Array: mixture `x` moved so that each of S strategies has at least `tremble`: (1 - S·tremble) x + tremble."""
    if not 0 <= tremble * len(x) < 1:
        raise InputError(f"risk_averse: tremble={tremble} times {len(x)} strategies must be in [0, 1)")
    return (1 - len(x) * tremble) * x + tremble


def risk_averse_equilibrium(
    game: Game, lam: float = 0.1, tremble: float = 0.05, steps: int = 2000, start: Mixtures | None = None
) -> Mixtures:
    """Mixed strategies of a `Game`'s risk-averse equilibrium by fictitious play, y ← y + (response(y) - y) / (t + 1).

    Each player responds to the others' mixtures after they were smoothed: against a pure profile no variance would be
    seen, and the answer would be that of `lam` 0.

    Args:
        game: any game; with `variance`, the spread of single returns counts too.
        lam: weight of the variance.
        tremble: smallest probability of each strategy of the others in the response.
        steps: of fictitious play.
        start: mixtures; None: uniform.

    Raises:
        InputError: `start` is no mixture of each player, or `tremble` is too large.
    """
    if start:
        game.joint(start)
    mixtures = [np.array(x, float) for x in (start or uniform_mixtures(game))]
    for t in range(1, steps + 1):
        smooth = [tremble_mixture(x, tremble) for x in mixtures]
        for i in range(len(mixtures)):
            mean, cov = moments(game, i, smooth[:i] + smooth[i + 1 :])
            mixtures[i] += (risk_averse_response(mean, cov, lam) - mixtures[i]) / (t + 1)
    return tuple(mixtures)
