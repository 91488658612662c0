"""Filtered cloning: which turns are cloned at all, by critics of the whole attempt and of the single step.

A segment is what `over` says: an episode of an agent, or the part of it that went for one subgoal. The critics are
columns, as the stage `outcome_critics` fills them.
"""

from __future__ import annotations

import math

from palaestra.algebra.keys import in_last_turn, is_first
from palaestra.algebra.returns import return_to_go
from palaestra.algebra.selection import keep
from palaestra.algebra.signals import (
    Keys,
    Signal,
    SignalLike,
    as_signal,
    clip,
    cumulative,
    exp,
    fill_missing,
    highest,
    quantile,
    register,
    shift,
    total,
    where,
)
from palaestra.errors import ExpressionError

SEGMENT = ("episode", "agent", "segment")
"""A subgoal's part of an agent's episode, as the workflow `subgoals` tells it."""


@register()
def step_filter(
    value: SignalLike = "value",
    reward: SignalLike = "reward",
    *,
    gamma: float = 0.5,
    margin: float = 0.05,
    lam: float | None = None,
    end: SignalLike | None = None,
    over: Keys = ("episode", "agent"),
) -> Signal:
    """Signal in [0, 1]: DigiRL's step advantage [73], V(s') - V(s) - margin + r + G, clipped; above 0 turns are cloned.

    Computes ``clip(V(s') - V(s) - margin + r + G, 0, 1)``, G the return-to-go discounted by γ, the form of the code
    released with arXiv 2406.11896; or with `lam` the written form, ``λ^(H-h)·r_H + (1 - λ^(H-h))·(V(s') - V(s) + r)``,
    H the last step.

    Args:
        value: V of each turn, a chance of success.
        reward: Reward of the turn.
        gamma: Discount of the return-to-go.
        margin: An improvement of V up to this does not count.
        lam: λ of the written form, in (0, 1]; None takes the form of the code.
        end: V after the last turn; default: what was earned in all, which is then known.
        over: Key of a segment.

    Returns:
        float64[rows]; the code's form in [0, 1].

    Raises:
        ExpressionError: gamma or lam is out of range.

    >>> from palaestra.algebra.turns import Turns
    >>> rows = {"episode": [0] * 4, "agent": ["a"] * 4, "reward": [0.0, 0, 0, 1], "value": [0.3, 0.35, 0.2, 0.6]}
    >>> step_filter(lam=0.5).evaluate(Turns(rows)).round(3)
    array([0.169, 0.138, 0.7  , 1.   ])
    """
    if not 0 <= gamma <= 1 or not (lam is None or 0 < lam <= 1):
        raise ExpressionError(f"step_filter: gamma={gamma} must lie in [0, 1], lam={lam} in (0, 1], or be left out")
    now, paid = as_signal(value), fill_missing(reward, 0.0)
    after = total(paid, over=over) if end is None else as_signal(end)
    change = where(in_last_turn(over=over), after, shift(now, n=-1, over=over)) - now + paid
    if lam is None:
        return clip(change - margin + return_to_go(paid, gamma=gamma, over=over), low=0.0, high=1.0)
    left = cumulative(0.0 * paid + 1.0, reverse=True, over=over) - 1.0
    share, last = exp(left * math.log(lam)), total(where(in_last_turn(over=over), paid, 0.0), over=over)
    return share * last + (1.0 - share) * change


@register()
def vsc_rl(
    outcome: SignalLike = "subgoal_done",
    *,
    first: SignalLike = "first_value",
    value: SignalLike = "value",
    top: float = 0.1,
    passed: bool = True,
    gamma: float = 0.5,
    margin: float = 0.05,
    over: Keys = SEGMENT,
) -> Signal:
    """Signal: [192] VSC-RL (2502.07949), cloning mask: 1 in won segments of the `top` share if `step_filter` > 0.

    A segment counts if its outcome, less the critic's value of its first turn, is in the upper `top` of the batch's
    segments; of it those turns are cloned where `step_filter` is above 0.

    Args:
        outcome: 1 on the turn after which the subgoal's check passed; the segment's return is its largest.
        first: Chance of success at the segment's first turn.
        value: Chance of success at each turn.
        top: Share of the segments, those at its border included.
        passed: Of the segments only those whose check passed are cloned. DigiRL has no such rule; it matters where
            fewer than `top` of the segments pass.
        gamma: As of `step_filter`.
        margin: As of `step_filter`.
        over: Key of a segment.

    Returns:
        float64[rows], 0 or 1: `weights('vsc_rl()')`, `clone(column='weight')`.

    Raises:
        ExpressionError: top is not in (0, 1].

    The pull to a reference policy is a term beside it: `clone(column='advised')` on rows of `advised_actions`, which is
    the forward divergence that the paper's loss has, or `kl()`, the reverse one of its theory. In the released code the
    actions of the reference are not used.
    """
    if not 0 < top <= 1:
        raise ExpressionError(f"vsc_rl: top={top} is not in (0, 1]")
    done = fill_missing(outcome, 0.0)
    won = highest(done, over=over)
    kept = keep(won - as_signal(first), quantile=1.0 - top, unit=over)
    found = kept & (step_filter(value, done, gamma=gamma, margin=margin, over=over) > 0.0)
    return where(found & (won > 0.0) if passed else found, 1.0, 0.0)


@register()
def short_success(
    success: SignalLike = "verdict", *, q: float = 0.2, by: Keys = "task", unit: Keys = ("episode", "agent")
) -> Signal:
    """Signal: PAE's filter [175] (arXiv 2412.13194), 1 on the turns of successes that are short for their task, else 0.

    Of the successes of each task those are kept whose length, in turns, is at most the q-quantile of these lengths,
    linear between order statistics; so the only success of a task is kept.

    Args:
        success: Whether the unit succeeded, on all of its turns; missing is no success.
        q: Quantile of the lengths; 1 keeps all successes.
        by: Successes of one value are compared.
        unit: Key of an attempt.

    Returns:
        float64[rows], 0 or 1: `weights('short_success()')`, `clone(column='weight')`.

    >>> from palaestra.algebra.turns import Turns
    >>> episode = [e for e, n in enumerate([3, 6]) for _ in range(n)]
    >>> rows = {"episode": episode, "agent": ["a"] * 9, "task": ["t"] * 9, "verdict": [True] * 9}
    >>> short_success().evaluate(Turns(rows)).tolist()
    [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    won = fill_missing(success, 0.0) > 0.0
    length = total(fill_missing(0.0 * as_signal(won), 0.0) + 1.0, over=unit)
    most = quantile(length, q=q, over=by, where=is_first(over=unit) & won)
    return where(won & (length <= most), 1.0, 0.0)
