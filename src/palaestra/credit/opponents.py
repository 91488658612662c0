"""Opponents: credit that minds what one's own advantage does to the other player's, in games of two.

Left out: more than two players, for which the published method is not defined, and opponents that are differentiated
through.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from palaestra.algebra.kernels import Evaluation, kernel
from palaestra.algebra.keys import joined, turn_values
from palaestra.algebra.returns import as_reward, in_unit, return_to_go
from palaestra.algebra.signals import (
    Keys,
    Signal,
    SignalLike,
    Singleton,
    as_signal,
    clip,
    cumulative,
    fill_missing,
    leave_one_out,
    register,
    shift,
    sign,
    where,
)
from palaestra.errors import ExpressionError, InputError


@register()
def opponent(x: SignalLike, *, over: Keys = ("episode", "turn")) -> Signal:
    """Signal: x of the key's other row, the other player's in the same turn; missing without one, more than two raise.

    Raises:
        InputError: more than two rows share a key, so there is no such thing as the other.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"episode": [0, 0, 0], "turn": [0, 0, 1], "reward": [1.0, 2.0, 3.0]})
    >>> opponent("reward").evaluate(turns)
    array([ 2.,  1., nan])
    """
    return Signal("opponent", as_signal(x), over=joined(over))


@kernel("opponent")
def _opponent(evaluation: Evaluation, node: Signal) -> np.ndarray:
    (x,), codes = turn_values(evaluation, node, node.inputs), evaluation.codes(node.options["over"])
    counts = np.bincount(codes.ids, minlength=codes.size)
    if counts.max(initial=0) > 2:
        row = int(np.flatnonzero(counts[codes.ids] > 2)[0])
        raise InputError(
            f"opponent: {counts.max()} rows share {node.options['over']} with row {row}, so there is no one opponent; "
            "use it for two players, or give a finer key"
        )
    order = np.argsort(codes.ids, kind="stable")
    first = np.flatnonzero(np.diff(codes.ids[order]) == 0)
    result = np.full(len(x), np.nan)
    result[order[first]], result[order[first + 1]] = x[order[first + 1]], x[order[first]]
    return result


@register()
def alignment_weight(
    advantage: SignalLike, *, gamma: float = 0.9, inclusive: bool = False, flavour: Literal["code"] | None = None
) -> Signal:
    """Signal: discounted sum w_t = Σ_{k<t} γ^(t-k)·A_k of the agent's own earlier advantages; inclusive: k <= t.

    flavour="code": the released form of the exclusive sum has one more factor γ.
    """
    if flavour not in (None, "code"):
        raise ExpressionError(f"alignment_weight: flavour={flavour!r}; known: code")
    in_unit("alignment_weight", gamma=gamma)
    weight = cumulative(advantage, gamma=gamma, exclusive=not inclusive)
    return gamma * weight if flavour == "code" and not inclusive else weight


@register()
def advantage_alignment(
    reward: SignalLike = "reward",
    *,
    gamma: float = 0.9,
    beta: float = 0.5,
    advantage: SignalLike | None = None,
    inclusive: bool = False,
    signs: bool = False,
    limit: float | None = None,
    by_turn: bool = False,
    first: float | None = None,
    discounted: bool = False,
    singleton: Singleton = "raw",
    flavour: Literal["code"] | None = None,
) -> Signal:
    """Signal: [50] advantage alignment with a group baseline (2511.19405, 2406.14662), A_t + β·w_t·A_t of the opponent.

    A (`advantage`): discounted return-to-go minus the mean of the group's other episodes at the same turn, per agent; a
    group of one passes raw, unlike elsewhere, as in the released code. w: `alignment_weight`. An agent that has done
    well so far is credited for what helps the other, one that has done badly for what harms it. Episodes of a group
    should share their random numbers.

    Options of the released code, off by default: signs: only the sign of w, which needs β = 1; limit: w is cut to
    ±limit; by_turn: w / (t + 1); first: w on an agent's first turn; discounted: the whole times γ^t. It also whitens:
    `whiten(advantage_alignment())`. Two players; rows without an opponent in their turn keep A.

    Raises:
        ExpressionError: signs with another β than 1.
    """
    as_reward("advantage_alignment", reward)
    if signs and beta != 1:
        raise ExpressionError(f"advantage_alignment: signs=True needs beta=1, not {beta}")
    own = (
        as_signal(advantage)
        if advantage is not None
        else leave_one_out(return_to_go(reward, gamma=gamma), over=("group", "turn", "agent"), singleton=singleton)
    )
    weight = fill_missing(alignment_weight(own, gamma=gamma, inclusive=inclusive, flavour=flavour), 0.0)
    played = cumulative(1.0, exclusive=True)
    weight = sign(weight) if signs else weight
    weight = weight if limit is None else clip(weight, low=-limit, high=limit)
    weight = weight / (played + 1.0) if by_turn else weight
    weight = weight if first is None else where(shift(1.0, n=1, fill=0.0) == 0.0, first, weight)
    credit = own + beta * weight * fill_missing(opponent(own), 0.0)
    return gamma**played * credit if discounted else credit
