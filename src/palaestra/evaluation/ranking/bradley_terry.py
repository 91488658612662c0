"""Bradley-Terry: one strength per system, so that the odds of winning are the ratio of strengths; draws by Davidson.

Everything takes a batch of win tables, so a bootstrap is one call. Left out: home advantage and covariates.
"""

from __future__ import annotations

import numpy as np
import scipy

from palaestra.errors import InputError

_STEPS, _CLOSE = 200, 1e-10


def bradley_terry(
    wins: np.ndarray, ties: np.ndarray | None = None, *, model: str = "half", prior: float = 0.0
) -> np.ndarray:
    """Bradley-Terry log strengths θ, mean 0, of win counts [..., n, n] (row beat column); raises if not comparable.

    P(i beats j) = 1 / (1 + e^{θ_j - θ_i}), maximum likelihood by Newton's method. model="half": a draw is half a win
    for each (the default of Elo boards and of evalica); "davidson": draws have a parameter of their own, P(draw) ∝
    ν √(e^{θ_i} e^{θ_j}) (Davidson 1970; Newman 2023). prior: draws of everyone with an imaginary system of strength 0.
    Without a prior, one that never lost has no finite strength.

    Raises:
        InputError: somebody cannot be compared and prior is 0: nobody of one group ever beat or drew one of another.

    >>> bradley_terry(np.array([[0, 3], [1, 0]])).round(4).tolist()
    [0.5493, -0.5493]
    """
    return _fit(wins, ties, model, prior)[0]


def draw_parameter(wins: np.ndarray, ties: np.ndarray, *, prior: float = 0.0) -> np.ndarray:
    """Draw parameter ν of Davidson's model, float64[...], from win and tie counts; equals draw with ν / (2 + ν)."""
    return np.asarray(np.exp(_fit(wins, ties, "davidson", prior)[1]))


def win_chance(strengths: np.ndarray) -> np.ndarray:
    """Bradley-Terry win chances from log strengths: float64[..., n, n], P(row beats column) without draws."""
    gap = strengths[..., :, None] - strengths[..., None, :]
    return np.asarray(1 / (1 + np.exp(-gap)))


def _fit(wins: np.ndarray, ties: np.ndarray | None, model: str, prior: float) -> tuple[np.ndarray, np.ndarray]:
    wins = np.asarray(wins, float)
    ties = np.zeros_like(wins) if ties is None else np.asarray(ties, float)
    if model not in ("half", "davidson"):
        raise InputError(f"bradley_terry: model={model!r} is neither 'half' nor 'davidson'")
    points = wins + ties / 2
    if prior == 0:
        _check(points)
    lead, n = wins.shape[:-2], wins.shape[-1]
    points = points.reshape(-1, n, n)
    games = points + points.swapaxes(1, 2)
    draws, played = (x.reshape(-1, n, n).sum((1, 2)) / 2 for x in (ties, games))
    mixed = (draws > 0) & (draws < played)  # of no draws, and of nothing else, the likeliest ν is 0 and infinite
    davidson = model == "davidson" and bool(mixed.any())
    theta, log_nu = np.zeros((len(points), n)), np.where(draws > 0, 0.0, -np.inf)
    scored = points.sum(2)
    for _ in range(_STEPS):
        gap = theta[:, :, None] - theta[:, None, :]
        half = np.exp(-np.abs(gap) / 2)
        if davidson:
            tie = np.exp(log_nu)[:, None, None] * half
            total = 1 + half**2 + tie
            p_tie = tie / total
        else:
            total, p_tie = 1 + half**2, np.zeros_like(half)
        larger = 1 / total
        p_win = np.where(gap >= 0, larger, half**2 * larger)
        expected = p_win + p_tie / 2
        own = prior * (0.5 - 1 / (1 + np.exp(-theta)))
        gradient = scored - (games * expected).sum(2) + own
        slope = games * (p_win * (1 - p_win - p_tie) + p_tie * (1 - p_tie) / 4)  # Var of the points in one game
        hessian = -slope
        spring = prior / (2 + np.exp(theta) + np.exp(-theta))
        hessian[:, np.arange(n), np.arange(n)] = slope.sum(2) - slope[:, np.arange(n), np.arange(n)] + spring
        if prior == 0:
            hessian += 1.0 / n
        if davidson:
            excess = np.where(mixed, draws - (games * p_tie).sum((1, 2)) / 2, 0.0)
            cross = (games * p_tie * (0.5 - expected)).sum(2)  # Cov(points, draw), summed over games
            curve = (games * p_tie * (1 - p_tie)).sum((1, 2)) / 2
            gradient = np.concatenate([gradient, excess[:, None]], 1)
            hessian = np.block([[hessian, cross[:, :, None]], [cross[:, None, :], curve[:, None, None]]])
            hessian[:, n, n] += ~mixed
        step = np.linalg.solve(hessian, gradient[..., None])[..., 0]
        largest = np.abs(step).max(1, keepdims=True)
        step *= np.minimum(1.0, 2.0 / np.maximum(largest, 1e-300))
        theta += step[:, :n]
        log_nu += np.where(mixed, step[:, n], 0.0) if davidson else 0.0
        if largest.max() < _CLOSE:
            break
    theta -= theta.mean(1, keepdims=True)
    log_nu = np.where((draws > 0) & ~mixed, np.inf, log_nu)
    return theta.reshape(*lead, n), log_nu.reshape(lead)


def _check(points: np.ndarray) -> None:
    for one in points.reshape(-1, *points.shape[-2:]):
        number, label = scipy.sparse.csgraph.connected_components(scipy.sparse.csr_array(one > 0), connection="strong")
        if number > 1:
            group = np.flatnonzero(label == label[0]).tolist()
            raise InputError(
                f"bradley_terry: {number} groups have no finite distance: systems {group[:5]} and the others did not "
                "take points from each other both ways; give prior=0.5, or play more matches"
            )
