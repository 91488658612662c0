"""When a team can help at all: the closed forms of [121] (arXiv 2601.17311), signals that pass up a tree of votes.

A signal μ = 2 · accuracy - 1. A node of a tree takes the majority of b children whose errors are correlated by ρ, and
what it hears arrives with fidelity γ. The recursion and the exponent were derived again and agree with simulation; the
paper's theorem 4 and its limit on context are quoted. Left out: even b, where a majority needs a rule for ties.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy

from palaestra.errors import InputError


class Synergy(NamedTuple):
    """Result of `synergy`: gain per level, exponent and fixed point of a tree of majority votes.

    alpha: what one level makes of a weak signal; at most 1 it dies. exponent: log_b alpha; a team helps where it is
    above the exponent of a single agent's own compute. fixed_point: the signal of an endless tree, 0 where it dies.
    """

    alpha: float
    exponent: float
    fixed_point: float


def majority_gain(branch: int) -> float:
    """Slope of the majority of `branch` votes at signal 0: b · C(b-1, (b-1)/2) / 2^(b-1).

    f'(0) is 1.5, 1.875, 2.1875 for b = 3, 5, 7.
    """
    _odd(branch)
    return float(branch * scipy.special.comb(branch - 1, (branch - 1) // 2) / 2 ** (branch - 1))


def tree_step(signal: float, *, branch: int, fidelity: float = 1.0, correlation: float = 0.0) -> float:
    """Signal in [-1, 1] a level up a vote tree of `branch`: fidelity · [ρ·signal + (1 - ρ) f(signal)], correlation ρ.

    μ' = γ [ρ μ + (1 - ρ) f_b(μ)] with b the `branch`.

    f_b(μ) = 2 P(Bin(b, (1 + μ)/2) > b/2) - 1.
    """
    _check(branch, fidelity, correlation)
    majority = 2 * float(scipy.stats.binom.sf(branch // 2, branch, (1 + signal) / 2)) - 1
    return fidelity * (correlation * signal + (1 - correlation) * majority)


def tree_signal(signal: float, *, branch: int, depth: int, fidelity: float = 1.0, correlation: float = 0.0) -> float:
    """Signal at the root of a tree of majority votes of `branch` children, `depth` levels and `signal` at leaves."""
    for _ in range(depth):
        signal = tree_step(signal, branch=branch, fidelity=fidelity, correlation=correlation)
    return signal


def synergy(branch: int, fidelity: float = 1.0, correlation: float = 0.0) -> Synergy:
    """`Synergy` of a tree of majority votes of `branch` children: gain, exponent and fixed signal (0 where it dies).

    Gain α = γ [ρ + (1 - ρ) f'(0)], exponent log_b α; fidelity γ, correlation ρ.

    Raises:
        InputError: branch is not odd and at least 3, or a share is none.

    >>> [round(value, 4) for value in synergy(3, 0.9)]
    [1.35, 0.2732, 0.8819]
    """
    _check(branch, fidelity, correlation)
    alpha = fidelity * (correlation + (1 - correlation) * majority_gain(branch))
    exponent = math.log(alpha, branch) if alpha > 0 else -math.inf
    if alpha <= 1:
        return Synergy(alpha, exponent, 0.0)
    signal = 1.0
    for _ in range(100_000):
        new = tree_step(signal, branch=branch, fidelity=fidelity, correlation=correlation)
        if abs(new - signal) < 1e-13:
            break
        signal = new
    return Synergy(alpha, exponent, signal)


def best_tree(
    budget: float, *, branch: int, scale: float, exponent: float, fidelity: float = 1.0, correlation: float = 0.0
) -> tuple[int, float]:
    """(depth, root signal): best majority tree of `branch` splitting `budget` over leaves of signal scale · x^exponent.

    A leaf that spends x has the signal min(1, scale · x^exponent); depth 0 is one agent with the whole budget.
    """
    _check(branch, fidelity, correlation)
    if budget < 1 or scale <= 0:
        raise InputError(f"best_tree: budget={budget} must be at least 1 and scale={scale} above 0")
    found = []
    for depth in range(int(math.log(budget, branch) + 1e-9) + 1):
        leaf = min(1.0, scale * (budget / branch**depth) ** exponent)
        found.append(tree_signal(leaf, branch=branch, depth=depth, fidelity=fidelity, correlation=correlation))
    best = int(np.argmax(found))
    return best, found[best]


class BestTeam(NamedTuple):
    """Result of `best_team`: branching, depth and root signal of the best tree of agents.

    branch: children of each node. depth: levels above the leaves; 0 is one agent. signal: at the root.
    """

    branch: int
    depth: int
    signal: float


def best_team(
    budget: float,
    *,
    scale: float,
    exponent: float,
    fidelity: float = 1.0,
    correlation: float = 0.0,
    window: int | None = None,
    message: int = 1,
    branches: Sequence[int] = (3, 5, 7, 9),
) -> BestTeam:
    """`BestTeam`: best tree of agents of `scale`, `exponent` at a budget over branch counts and depths, or one agent.

    See `best_tree`.

    Args:
        budget: what all leaves spend together.
        scale: signal of an agent that spends 1.
        exponent: β, how its signal grows with what it spends.
        fidelity: γ, of a message.
        correlation: ρ, of the errors of two agents.
        window: tokens that a node can read; no node has more than window // message children ([121]).
        message: tokens of a message.
        branches: how many children a node may have, odd numbers.

    Returns:
        The tree with the strongest signal; of equal ones the one with fewer children.
    """
    if message < 1 or (window is not None and window < 1):
        raise InputError(f"best_team: window={window} and message={message} must be at least 1")
    found = [BestTeam(1, 0, min(1.0, scale * budget**exponent))]
    for branch in branches:
        if window is None or branch <= window // message:
            depth, signal = best_tree(
                budget, branch=branch, scale=scale, exponent=exponent, fidelity=fidelity, correlation=correlation
            )
            if depth > 0:
                found.append(BestTeam(branch, depth, signal))
    return max(found, key=lambda team: team.signal)


def averaging_floor(noise: float, *, branch: int, correlation: float = 0.0) -> float:
    """Variance below which no tree of averages falls with message noise: noise / [(branch - 1)(1 - correlation)]."""
    if branch < 2 or not 0 <= correlation < 1 or noise < 0:
        raise InputError(f"averaging_floor: branch={branch} >= 2, 0 <= correlation={correlation} < 1, noise={noise}")
    return noise / ((branch - 1) * (1 - correlation))


def _odd(branch: int) -> None:
    if branch < 3 or branch % 2 == 0:
        raise InputError(f"synergy: branch={branch}, expected an odd number of at least 3: majorities must be clear")


def _check(branch: int, fidelity: float, correlation: float) -> None:
    _odd(branch)
    if not (0 <= fidelity <= 1 and 0 <= correlation <= 1):
        raise InputError(f"synergy: fidelity={fidelity} and correlation={correlation} must be from 0 to 1")
