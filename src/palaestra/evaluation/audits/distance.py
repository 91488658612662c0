"""[211] STARC, EPIC and DARD: how far apart two rewards are, whatever potential shaping hides.

Arrays: R[s, a, s'] rewards, T[s, a, s'] probabilities, γ < 1. A canonicalisation is linear and removes potential
shaping (and, for `val` and `minimal`, redistribution over s', which no policy can notice either). STARC (arXiv
2309.15257) is half the distance of the normalised results; EPIC and DARD correlate them. Formulas follow the released
code of STARC and EPIC; DARD's second-step states are successors of s' in both terms, as its authors have it.
"""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np
import polars as pl
import scipy

from palaestra.algebra.codes import Codes, code_column, combine
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError

Method = Literal["val", "val_potential", "minimal", "minimal_potential", "epic", "dard", "none"]
METHODS = ("val", "val_potential", "minimal", "minimal_potential", "epic", "dard", "none")


def _checked(R: np.ndarray, T: np.ndarray, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    R, T = np.asarray(R, float), np.asarray(T, float)
    if T.ndim != 3 or T.shape[0] != T.shape[2]:
        raise InputError(f"T has shape {T.shape}; give probabilities [states, actions, states]")
    if R.shape == T.shape[:2]:
        R = np.broadcast_to(R[:, :, None], T.shape)
    if R.shape != T.shape:
        raise InputError(
            f"R has shape {R.shape}, T {T.shape}; give rewards [states, actions] or [states, actions, states]"
        )
    if not np.isfinite(R).all() or not np.allclose(T.sum(2), 1) or (T < 0).any():
        raise InputError("R must be finite and every T[s, a] a distribution over states")
    if not 0 <= gamma < 1:
        raise InputError(f"gamma={gamma} must be in [0, 1)")
    return R, T


def policy_values(R: np.ndarray, T: np.ndarray, gamma: float, policy: np.ndarray) -> np.ndarray:
    """Exact values V[s] of `policy` [s, a] for rewards R[s, a, s'], transitions T and gamma: V = r_π + γ P_π V."""
    expected = (T * R).sum(2)
    moves = np.einsum("sa,sat->st", policy, T)
    values: np.ndarray = np.linalg.solve(np.eye(len(T)) - gamma * moves, (policy * expected).sum(1))
    return values


def canonicalise(R: np.ndarray, T: np.ndarray, gamma: float, method: Method = "val") -> np.ndarray:
    """Canonical form float64[s, a, s'] of reward R under transitions T and gamma: equal for rewards `method` equates.

    Rewards have one form if they differ by what the method ignores alone.

    method: default VAL, E_s'[R + γV(s') - V(s)] under the uniform policy.

    val: E_s'[R + γV(s') - V(s)] under the uniform policy. val_potential: the same without E_s'. minimal_potential: the
    shaping of R of least L2 norm. minimal: of least norm over shaping and redistribution. epic: R + γE[R(s', A, S')] -
    E[R(s, A, S')] - γE[R(S, A, S')], uniform S, A, S'. dard: the same with successors drawn from T.

    Raises:
        InputError: shapes that do not fit, T that is no distribution, gamma outside [0, 1), an unknown method.
    """
    R, T = _checked(R, T, gamma)
    states, actions = T.shape[:2]
    if method not in METHODS:
        raise InputError(f"canonicalise: method {method!r} is unknown; known: {', '.join(METHODS)}")
    if method == "none":
        return R
    if method in ("val", "val_potential"):
        V = policy_values(R, T, gamma, np.full((states, actions), 1 / actions))
        shaped = R + gamma * V - V[:, None, None]
        return shaped if method == "val_potential" else np.broadcast_to((T * shaped).sum(2)[:, :, None], T.shape)
    if method in ("minimal", "minimal_potential"):
        return _least(R, T, gamma, redistribute=method == "minimal")
    if method == "epic":
        m = R.mean((1, 2))
        return np.asarray(R + gamma * m - m[:, None, None] - gamma * R.mean())
    step = (T * R).sum(2).mean(1)  # E[R(s, A, S')]
    # E[R(S', A, S'')] with S' a successor of s and S'' one of s', all by the same action
    across = np.einsum("sau,uat,vat->sv", T, R, T, optimize=True) / actions
    return np.asarray(R + gamma * step - step[:, None, None] - gamma * across[:, None, :])


def _least(R: np.ndarray, T: np.ndarray, gamma: float, *, redistribute: bool) -> np.ndarray:
    """Least squares over the potential; a redistribution of given mean c over s' has least norm c·T/‖T‖²."""
    states, actions = T.shape[:2]
    leave = np.repeat(np.eye(states), actions, axis=0)
    if redistribute:
        norm = np.sqrt((T**2).sum(2)).ravel()[:, None]
        design = (gamma * T.reshape(-1, states) - leave) / norm
        target = (T * R).sum(2).ravel() / norm[:, 0]
        residual: np.ndarray = target - design @ np.linalg.lstsq(design, target, rcond=None)[0]
        representative: np.ndarray = (residual / norm[:, 0]).reshape(states, actions, 1) * T
        return representative
    arrive = np.tile(np.eye(states), (states * actions, 1))
    design = gamma * arrive - np.repeat(leave, states, axis=0)
    residual = R.ravel() - design @ np.linalg.lstsq(design, R.ravel(), rcond=None)[0]
    return residual.reshape(T.shape)


def starc(
    R1: np.ndarray, R2: np.ndarray, T: np.ndarray, gamma: float, *, method: Method = "val", norm: float = 2
) -> float:
    """STARC distance of rewards [s, a, s'] under T, half that of their normalised canonical forms: 0 equal, 1 opposite.

    >>> T = np.full((2, 2, 2), 0.5)
    >>> R = np.array([[0.0, 1.0], [2.0, 0.0]])
    >>> round(starc(R, 3 * R, T, 0.9), 6), round(starc(R, -R, T, 0.9), 6)
    (0.0, 1.0)
    """
    first, second = (_canonical(R, T, gamma, method) for R in (R1, R2))
    sizes = [np.linalg.norm(R, norm) or 1.0 for R in (first, second)]
    return float(np.linalg.norm(first / sizes[0] - second / sizes[1], norm) / 2)


def _canonical(R: np.ndarray, T: np.ndarray, gamma: float, method: Method) -> np.ndarray:
    """The canonical form of R / max |R|, flat; what rounding leaves of a reward that is shaping alone is 0."""
    R = np.asarray(R, float)
    form = canonicalise(R / (np.abs(R).max(initial=0.0) or 1.0), T, gamma, method).ravel()
    return form if np.abs(form).max(initial=0.0) > 1e-9 else np.zeros_like(form)


def epic(R1: np.ndarray, R2: np.ndarray, T: np.ndarray, gamma: float) -> float:
    """EPIC distance of two rewards [s, a, s'] for T and gamma, √((1 - ρ)/2) of canonical forms, in [0, 1].

    arXiv 2006.13900, with uniform coverage.
    """
    return _pearson_distance(*(_canonical(R, T, gamma, "epic") for R in (R1, R2)))


def dard(R1: np.ndarray, R2: np.ndarray, T: np.ndarray, gamma: float) -> float:
    """DARD distance of two rewards [s, a, s'] (arXiv 2201.10081): as EPIC, with expectations over transitions of T."""
    return _pearson_distance(*(_canonical(R, T, gamma, "dard") for R in (R1, R2)))


def _pearson_distance(first: np.ndarray, second: np.ndarray) -> float:
    """√((1 - ρ)/2); a constant reward correlates with nothing, so ρ = 0."""
    first, second = (x / (np.abs(x).max(initial=0.0) or 1.0) for x in (first, second))
    first, second = first - first.mean(), second - second.mean()
    size = np.linalg.norm(first) * np.linalg.norm(second)
    rho = float(first @ second / size) if size > 1e-12 else 0.0
    return float(np.sqrt(max(0.0, 1 - rho) / 2))


def optimal_policy(R: np.ndarray, T: np.ndarray, gamma: float) -> np.ndarray:
    """A deterministic optimal policy for reward R and transitions T, one-hot float64[s, a], by policy iteration."""
    R, T = _checked(R, T, gamma)
    R = R / (np.abs(R).max() or 1.0)
    expected = (T * R).sum(2)
    choice = expected.argmax(1)
    rows = np.arange(len(T))
    while True:
        policy: np.ndarray = np.eye(T.shape[1])[choice]
        q = expected + gamma * T @ policy_values(R, T, gamma, policy)
        better = q.argmax(1)
        better = np.where(q[rows, better] > q[rows, choice] + 1e-10, better, choice)
        if (better == choice).all():
            return policy
        choice = better


def regret(R1: np.ndarray, R2: np.ndarray, T: np.ndarray, gamma: float) -> float:
    """Regret on R1 of a policy optimal for R2, arrays [s, a, s'], under T, as a share of best less worst return.

    The start is uniform over states.
    """
    R1, T = _checked(R1, T, gamma)
    best, worst, found = (
        policy_values(R1, T, gamma, optimal_policy(R, T, gamma)).mean() for R in (R1, -R1, np.asarray(R2, float))
    )
    return float((best - found) / (best - worst)) if best - worst > 1e-12 * np.abs(R1).max() else 0.0


def canonical_on_table(turns: Turns, rewards: np.ndarray, *, gamma: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """(forms [n, pairs], shares): arrays `rewards` [n, rows] of `Turns` in canonical form per played (state, action).

    The share of a pair is that of its turns.
    Process and policy are those of the table: its states, how often which followed which, and what that paid. So
    potential shaping with Φ a function of `state` changes nothing, exactly. Without a column `action` the successor
    stands for it. A turn after which an episode was cut off
    has no known successor and is left out.

    Args:
        turns: played turns with `state`.
        rewards: float64[n, rows].
        gamma: γ, the discount.

    Returns:
        float64[n, pairs] and float64[pairs].

    Raises:
        InputError: nothing is left, or with γ = 1 some states never lead to an end.
    """
    segments = turns.segments("episode", "agent")
    order = np.arange(len(turns)) if segments.order is None else segments.order
    state = code_column(turns["state"]).ids
    after = np.full(len(turns), -1)
    after[order[:-1]] = state[order[1:]]
    last = order[(segments.starts + segments.lengths - 1)[segments.lengths > 0]]
    after[last] = -1
    kept = np.ones(len(turns), bool)
    if "truncated" in turns.columns:
        kept[last] = ~turns["truncated"].fill_null(False).to_numpy()[last]
    while True:  # what leads to where nothing is known is not known either
        known = np.bincount(state[kept], minlength=state.max(initial=0) + 1) > 0
        lost = kept & (after >= 0) & ~known[after]
        if not lost.any():
            break
        kept &= ~lost
    if not kept.any():
        raise InputError("no turn is followed by another or by an end that is known")
    here, state = np.unique(state[kept], return_inverse=True)
    after = np.where(after[kept] >= 0, np.searchsorted(here, after[kept]), -1)
    visits, moves = np.bincount(state), after >= 0
    shape = (len(here), len(here))
    share = scipy.sparse.csr_matrix((1 / visits[state[moves]], (state[moves], after[moves])), shape)
    paid = np.stack([np.bincount(state, reward[kept]) / visits for reward in rewards])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", scipy.sparse.linalg.MatrixRankWarning)
        ahead = (scipy.sparse.eye(len(here)) - gamma * share).tocsc()
        values = scipy.sparse.linalg.spsolve(ahead, paid.T).reshape(len(here), -1).T
    if not np.isfinite(values).all() or np.abs(values).max(initial=0.0) > 1e12 * (np.abs(paid).max() or 1.0):
        raise InputError(f"with gamma={gamma} there are states that never lead to an end; give a smaller gamma")
    form = rewards[:, kept] + gamma * np.where(moves, values[:, after], 0.0) - values[:, state]
    chosen = code_column(turns["action"].filter(pl.Series(kept))) if "action" in turns.columns else None
    pair = combine(Codes(state, len(here)), chosen or Codes(after + 1, len(here) + 1))
    number = np.bincount(pair.ids, minlength=pair.size)
    met = number > 0
    sums = np.stack([np.bincount(pair.ids, each, minlength=pair.size) for each in form])
    return sums[:, met] / number[met], number[met] / number.sum()


def table_starc(turns: Turns, rewards: np.ndarray, *, gamma: float = 1.0, canonical: bool = True) -> float:
    """STARC distance of two reward arrays float64[2, rows] on `Turns`, in [0, 1]; see `canonical_on_table`.

    canonical: False compares them as they are, shaping and all.
    """
    scale = np.abs(rewards).max(axis=1, keepdims=True)
    forms, share = rewards / np.where(scale > 0, scale, 1.0), np.full(rewards.shape[1], 1 / max(rewards.shape[1], 1))
    if canonical:
        forms, share = canonical_on_table(turns, forms, gamma=gamma)
    forms = np.where(np.abs(forms).max(axis=1, keepdims=True) > 1e-9, forms, 0.0) * np.sqrt(share)
    sizes = np.linalg.norm(forms, axis=1, keepdims=True)
    return float(np.linalg.norm(np.subtract(*(forms / np.where(sizes > 0, sizes, 1.0)))) / 2)
