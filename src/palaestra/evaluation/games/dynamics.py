"""Equilibria as ends of dynamics in normal form: replicator, fictitious play, logit (QRE), and the SHOR blend.

All take a game with any number of players; only for zero-sum and potential games do averages reach a Nash equilibrium.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import scipy

from palaestra.errors import InputError
from palaestra.evaluation.games.game import Game

Mixtures = tuple[np.ndarray, ...]


def uniform_mixtures(game: Game) -> Mixtures:
    """Tuple with the uniform mixed strategy of each player of a `Game`."""
    return tuple(np.full(size, 1 / size) for size in game.shape)


def _need_steps(solver: str, steps: int) -> None:
    if steps < 1:
        raise InputError(f"{solver}: steps={steps} must be at least 1")


def replicator_dynamics(game: Game, steps: int = 2000, rate: float = 0.1) -> Mixtures:
    """Mixed strategies of a `Game`: time average of replicator dynamics ẋ = x (u - x·u) from uniform, by exponentials.

    Args:
        game: any game.
        steps: number of steps.
        rate: size of a step in units of 1 / (largest payoff difference).

    Raises:
        InputError: there is no step.
    """
    _need_steps("replicator", steps)
    scale = max(float(max(np.ptp(table) for table in game.payoffs)), 1e-12)
    mixtures = list(uniform_mixtures(game))
    logs = [np.log(x) for x in mixtures]
    total = [np.zeros_like(x) for x in mixtures]
    for _ in range(steps):
        values = [game.against(i, mixtures) for i in range(len(mixtures))]
        for i, value in enumerate(values):
            logs[i] = scipy.special.log_softmax(logs[i] + rate / scale * value)
            mixtures[i] = np.exp(logs[i])
            total[i] += mixtures[i]
    return tuple(x / x.sum() for x in total)


def fictitious_play(game: Game, steps: int = 2000) -> Mixtures:
    """Mixed strategies of a `Game` by fictitious play from uniform (Brown 1951): averages of the best responses."""
    mixtures = list(uniform_mixtures(game))
    for t in range(steps):
        for i in range(len(mixtures)):
            best = game.against(i, mixtures).argmax()
            mixtures[i] *= (t + 1) / (t + 2)
            mixtures[i][best] += 1 / (t + 2)
    return tuple(mixtures)


def logit_equilibrium(game: Game, rationality: float = 1.0) -> Mixtures:
    """Mixed strategies of a `Game`'s quantal response equilibrium x_i ∝ exp(rationality · u_i) (McKelvey & Palfrey).

    McKelvey and Palfrey 1995.
    x_i ∝ exp(λ u_i(x_{-i})) with λ the rationality, u_i the payoffs against the others.

    Follows the branch that begins at the uniform profile for λ = 0 to where it first reaches the λ that is asked for,
    so the same λ always gives the same equilibrium. Where the branch turns back, λ falls on it for a while.

    Raises:
        InputError: λ is negative, or the branch could not be followed.
    """
    if not 0 <= rationality < np.inf:
        raise InputError(f"qre: rationality={rationality} must be a finite number >= 0")
    scale = max(float(np.ptp(table)) for table in game.payoffs) or 1.0
    goal, size, ends = rationality * scale, sum(game.shape), np.cumsum(game.shape)[:-1]

    def mixtures(point: np.ndarray) -> list[np.ndarray]:
        return [scipy.special.softmax(own) for own in np.split(point[:-1], ends)]

    # A point is logits and scaled λ. A step along the tangent is corrected at a right angle to it (pseudo-arclength),
    # the last one at the λ that is asked for. It is halved where the correction is large or the orientation of the
    # curve changes: then it met another branch, unless two cross, which no smaller step avoids.
    point, step, orientation = np.zeros(size + 1), 0.1, 1.0
    up = tangent = np.eye(size + 1)[-1]
    while point[-1] < goal:
        last = tangent[-1] > 0 and point[-1] + step * tangent[-1] >= goal
        step = (goal - point[-1]) / tangent[-1] if last else step
        start = point + step * tangent
        found = _corrected(game, scale, start, up if last else tangent, mixtures)
        if found is not None:
            end, slope = found
            far = max(np.abs(x - y).max() for x, y in zip(mixtures(end), mixtures(start), strict=True)) > 0.05
            ahead = _tangent(slope, tangent)
            turned = float(np.linalg.slogdet(np.vstack([slope, ahead]))[0])
            if not far and (last or end[-1] < goal) and (turned == orientation or step <= 1e-4):
                point, tangent, orientation, step = end, ahead, turned, 2 * step
                if last:
                    break
                continue
        step /= 2
        if step < 1e-9:
            reached = point[-1] / scale
            raise InputError(f"qre: the branch cannot be followed beyond rationality={reached:.4g}; ask for less")
    return tuple(mixtures(point))


def _tangent(slope: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Direction in which the curve goes on from a point with this slope; `before` where two curves cross."""
    try:
        ahead = np.linalg.solve(np.vstack([slope, before]), np.eye(len(before))[-1])
    except np.linalg.LinAlgError:
        return before
    return np.asarray(ahead / np.linalg.norm(ahead))


def _corrected(
    game: Game, scale: float, start: np.ndarray, row: np.ndarray, mixtures: Callable[[np.ndarray], list[np.ndarray]]
) -> tuple[np.ndarray, np.ndarray] | None:
    """Newton's method for a quantal response equilibrium in the plane row · (point - start) = 0: (point, slope)."""
    point = start
    for _ in range(8):
        miss, slope = _logit_miss(game, scale, point, mixtures(point))
        if np.abs(miss).max() < 1e-11 * (1 + abs(point[-1])):
            return point, slope
        try:
            move = np.linalg.solve(np.vstack([slope, row]), np.append(miss, row @ (point - start)))
        except np.linalg.LinAlgError:
            return None
        point = point - move
    return None


def _logit_miss(game: Game, scale: float, point: np.ndarray, played: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(logits less λ times centred payoffs, and its derivative by logits and λ), payoffs in units of `scale`."""
    centred, rows = [], []
    for i in range(len(played)):
        value = game.against(i, played) / scale
        centred.append(value - value.mean())
        row = []
        for j, own in enumerate(played):
            if j == i:
                row.append(np.zeros((len(own), len(own))))
                continue
            table = np.moveaxis(game.payoffs[i], (i, j), (0, 1))
            for other in reversed(range(len(played))):
                table = table if other in (i, j) else table @ played[other]
            moved = table / scale * own
            moved = moved - np.outer(moved.sum(axis=1), own)  # by the logits of j
            row.append(moved - moved.mean(axis=0))
        rows.append(np.hstack(row))
    values = np.concatenate(centred)
    slope = np.eye(len(values)) - point[-1] * np.vstack(rows)
    return point[:-1] - point[-1] * values, np.column_stack([slope, -values])


def shor(
    game: Game,
    steps: int,
    *,
    blend: float = 0.01,
    temperature: float = 0.001,
    momentum: float = 0.2,
    diversity: float = 0.0,
    centre: Literal["mean", "value"] = "mean",
    average: bool = False,
) -> Mixtures:
    """Mixed strategies of a `Game` by `steps` of optimistic regret matching with a softmax (SHOR), last or averaged.

    It is the last iterate, or the average over all of them.

    Source: arXiv 2602.16928.

    Players in turn: u = payoffs against the others' mixtures, c = u - mean(u), g = (1 + momentum) c - momentum c' +
    diversity (1 - σ) with c' of the step before, g / max|g|, R ← max(0, R + g),
    σ = (1 - blend) R / ΣR + blend softmax(u / temperature).

    Payoffs are centred on their mean and not on the value of the mixture, as in the source: this is no equilibrium
    solver. On [[0, -1, 2], [1, 0, -1], [-2, 1, 0]] its last iterate keeps an exploitability of 0.74. For two players in
    a zero-sum game evaluate with `nash_mixtures`.

    Args:
        game: any game.
        steps: inner steps.
        blend: weight of the softmax.
        temperature: of the softmax.
        momentum: optimism.
        diversity: bonus for strategies with a small share.
        centre: "value" centres on the value of the mixture instead, as regret matching does.
        average: return the average over the steps instead of the last iterate.

    Raises:
        InputError: there is no step.
    """
    _need_steps("shor", steps)
    mixtures = list(uniform_mixtures(game))
    regrets = [np.zeros_like(x) for x in mixtures]
    before = [np.zeros_like(x) for x in mixtures]
    total = [np.zeros_like(x) for x in mixtures]
    tables = [np.ascontiguousarray(np.moveaxis(table, i, 0)) for i, table in enumerate(game.payoffs)]
    for _ in range(steps):
        for i in range(len(mixtures)):
            value = tables[i]
            for j in reversed(range(len(mixtures))):
                value = value if j == i else value @ mixtures[j]
            centred = value - (value.mean() if centre == "mean" else mixtures[i] @ value)
            gain = (1 + momentum) * centred - momentum * before[i] + diversity * (1 - mixtures[i])
            before[i] = centred
            largest = np.abs(gain).max()
            regrets[i] = np.maximum(0.0, regrets[i] + (gain / largest if largest > 1e-8 else gain))
            whole = regrets[i].sum()
            matched = regrets[i] / whole if whole > 0 else np.full(len(value), 1 / len(value))
            soft = np.exp((value - value.max()) / temperature)
            mixtures[i] = (1 - blend) * matched + blend * soft / soft.sum()
            total[i] += mixtures[i]
    return tuple(x / x.sum() for x in (total if average else mixtures))
