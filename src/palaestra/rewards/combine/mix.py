"""Combining: a reward out of named components, each of which stays in the table as a column `r_<name>`.

`components` adds the columns; the other functions say how several make one. Weights may be schedules. A missing
component makes the combination missing: not scored is not zero, so zeros have to be asked for (`fill_missing`). Left
out: what scores a component, and order as a preference between episodes (`pairs`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal, get_args

import numpy as np
import polars as pl

from palaestra.algebra.keys import joined, on_last
from palaestra.algebra.signals import (
    Keys,
    Signal,
    SignalLike,
    absolute,
    as_signal,
    col,
    count,
    fill_missing,
    per_turn,
    ratio,
    register,
    total,
    where,
)
from palaestra.algebra.turns import Turns
from palaestra.errors import ExpressionError, InputError, nearest

Grain = Literal["token", "turn", "episode"]


@dataclass(frozen=True)
class Component:
    """Data of a reward component: a score and its grain, one value per token, per turn, or per episode and agent.

    A value of an episode, which stands on each of its rows, counts once: on the agent's last turn.
    """

    score: SignalLike
    grain: Grain = "turn"

    def __post_init__(self) -> None:
        if self.grain not in get_args(Grain):
            raise InputError(f"Component: grain={self.grain!r}{nearest(str(self.grain), get_args(Grain))}")

    def column(self) -> Signal:
        """Signal of the component's column: the score, or its value on the last turn if the grain is an episode."""
        score = as_signal(self.score)
        return on_last(score) if self.grain == "episode" else score

    def per_turn(self, column: str) -> Signal:
        """Signal of the turn's value of a component that was stored as `column`."""
        return fill_missing(per_turn(column, method="total"), 0.0) if self.grain == "token" else col(column)


def components(
    turns: Turns,
    parts: Mapping[str, Component | SignalLike],
    *,
    combined: SignalLike | None = None,
    into: str = "reward",
) -> Turns:
    """`Turns` with a column `r_<name>` per reward component of `parts`, and their sum (or `combined`) in column `into`.

    parts: scores by name; a plain signal has a value per turn. combined: a signal of the columns `r_<name>`, such as
    `weighted(correct=1, format=0.1)` or `krc("r_speed", "r_angle")`.

    Raises:
        InputError: there is no part, or one that is not of grain "token" has a value per token.

    >>> turns = Turns({"episode": [0, 0], "turn": [0, 1], "agent": ["a"] * 2, "success": [1, 1], "valid": [1, 0]})
    >>> turns = components(turns, {"solved": Component("success", "episode"), "format": 0.1 * col("valid")})
    >>> turns.frame.select("r_solved", "r_format", "reward").rows()
    [(0.0, 0.1, 0.1), (1.0, 0.0, 1.0)]
    """
    if not parts:
        raise InputError("components: no parts; give at least one score")
    named = {f"r_{name}": part if isinstance(part, Component) else Component(part) for name, part in parts.items()}
    turns = turns.with_column(**{name: part.column() for name, part in named.items()})
    for name, part in named.items():
        if part.grain != "token" and isinstance(turns[name].dtype, pl.List):
            raise InputError(f"components: {part.score} has a value per token; sum it, per_turn(…, method='total')")
    added = [part.per_turn(name) for name, part in named.items()]
    return turns.with_column(**{into: reduce(Signal.__add__, added) if combined is None else as_signal(combined)})


@register()
def weighted(**weights: SignalLike) -> Signal:
    """Signal: Σ weight · r_<name> over reward components given as keywords; a weight is a number or a schedule.

    >>> weighted(correct=1, format=0.1)
    1.0 * col('r_correct') + 0.1 * col('r_format')
    """
    if not weights:
        raise ExpressionError("weighted: no weights; write weighted(correct=1, format=0.1)")
    return reduce(Signal.__add__, [as_signal(weight) * col(f"r_{name}") for name, weight in weights.items()])


@register()
def gate(condition: SignalLike, reward: SignalLike, otherwise: SignalLike = 0.0) -> Signal:
    """Signal: the reward where the condition holds, else `otherwise`."""
    return where(condition, reward, otherwise)


@register()
def cascade(
    first: tuple[SignalLike, SignalLike], *others: tuple[SignalLike, SignalLike], otherwise: SignalLike = 0.0
) -> Signal:
    """Signal: the value of the first case (condition, value) whose condition holds, else `otherwise`.

    For example `cascade((error, 0), (correct, 1), otherwise=0.3 * partial)`.
    A condition that is missing leaves the result missing, unless an earlier one holds.

    Raises:
        ExpressionError: a case is not a pair (condition, value).
    """
    result = as_signal(otherwise)
    for case in reversed((first, *others)):
        if not isinstance(case, tuple) or len(case) != 2:
            raise ExpressionError(f"cascade: {case!r} is not a case (condition, value)")
        result = where(case[0], case[1], result)
    return result


@register()
def product(first: SignalLike, *others: SignalLike) -> Signal:
    """Signal: product of the given signals, so that one 0 makes the whole 0."""
    return reduce(Signal.__mul__, map(as_signal, others), as_signal(first))


@register()
def krc(first: SignalLike, *others: SignalLike) -> Signal:
    """Signal: [21] Lucy-SKG's combination (arXiv 2305.15801), geometric mean of |R_i|, negative if any R_i is.

    Two negatives do not cancel, and one zero is a zero reward. (The paper asks for R_i > 0, the code for R_i >= 0;
    where they differ the value is 0 in both.) Components in [-1, 1].

    >>> krc("a", "b").evaluate(Turns({"a": [0.9, -0.9, 0.9, 0.8], "b": [0.1, -0.1, -0.1, 0.0]})).round(9)
    array([ 0.3, -0.3, -0.3,  0. ])
    """
    parts = [as_signal(first), *map(as_signal, others)]
    size = reduce(Signal.__mul__, map(absolute, parts)) ** (1.0 / len(parts))
    negative = reduce(Signal.__or__, [part < 0.0 for part in parts])
    return where(negative, 0.0 - size, size)


@register()
def lagrangian(reward: SignalLike, *constraints: tuple[SignalLike, SignalLike], normalise: bool = False) -> Signal:
    """Signal: [41] Lagrangian reward - Σ λ_i · cost_i for constraints given as pairs (cost, λ).

    cost: a column, such as 1 where a rule was broken. λ: a number or a column, kept outside by `dual_ascent`.
    normalise: divide by 1 + Σ λ_i, so that a large λ does not inflate the reward (a softmax over 0 and the log λ_i).
    Reconstruction of the constraint branch of the thesis, which was not read beyond its abstract.
    """
    shaped, size = as_signal(reward), as_signal(1.0)
    for case in constraints:
        if not isinstance(case, tuple) or len(case) != 2:
            raise ExpressionError(f"lagrangian: {case!r} is not a constraint (cost, multiplier)")
        shaped, size = shaped - as_signal(case[1]) * as_signal(case[0]), size + as_signal(case[1])
    return shaped / size if normalise else shaped


def dual_ascent(
    multipliers: np.ndarray | Sequence[float],
    costs: np.ndarray | Sequence[float],
    limits: Sequence[float],
    *,
    rate: float,
) -> np.ndarray:
    """New multipliers of constraints, array: max(0, λ_i + rate · (cost_i - limit_i)).

    costs: the batch's mean costs. A demand (success at least 0.3) is the cost -success with the limit -0.3.

    Raises:
        InputError: the three are not equally many.

    >>> dual_ascent([0.4, 0.0], [0.3, 0.1], [0.2, 0.2], rate=0.5)
    array([0.45, 0.  ])
    """
    price, cost, limit = (np.asarray(each, float) for each in (multipliers, costs, limits))
    if not price.shape == cost.shape == limit.shape:
        raise InputError(f"dual_ascent: {price.size} multipliers, {cost.size} costs and {limit.size} limits")
    return np.asarray(np.maximum(0.0, price + rate * (cost - limit)))


@register()
def team_mix(
    reward: SignalLike = "reward",
    *,
    tau: float = 0.3,
    teams: Keys = "team",
    at: Keys = ("episode", "turn"),
) -> Signal:
    """Signal: [21] team spirit per turn, (1 - τ) · r + τ · mean of the agent's team (column `teams`) - opponents' mean.

    From Lucy-SKG.

    Lucy-SKG's team spirit [21]; sums to 0 for two teams of equal size. teams: the key of the team, a column or
    `team()`, which goes by the agents' names. Without opponents at the turn that mean is 0.

    Raises:
        ExpressionError: tau is outside [0, 1].
    """
    if not 0 <= tau <= 1:
        raise ExpressionError(f"team_mix: tau={tau} is outside [0, 1]")
    own = joined(at, teams)
    number, size = count(reward, over=at), count(reward, over=own)
    sums = fill_missing(total(reward, over=at), 0.0), fill_missing(total(reward, over=own), 0.0)
    opponents = ratio(sums[0] - sums[1], number - size)
    return (1.0 - tau) * as_signal(reward) + tau * ratio(sums[1], size) - opponents
