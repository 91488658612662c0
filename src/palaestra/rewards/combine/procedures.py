"""Mixed rewards of a procedure: what each step is worth by itself, and what the whole process achieved."""

from __future__ import annotations

from palaestra.algebra.signals import (
    Keys,
    Signal,
    SignalLike,
    as_signal,
    fill_missing,
    is_missing,
    register,
    standardise,
    total,
    where,
)


@register()
def mact_reward(
    outcome: SignalLike = "reward",
    *,
    process: SignalLike = "process",
    result: SignalLike = "outcome",
    local: float = 1.0,
    shared: float = 1.0,
    over: Keys = ("group", "episode"),
) -> Signal:
    """Signal: MACT's reward of each row [143], local · its own score + shared · the episode's total outcome.

    arXiv 2508.03404.

    The own score is that of the process reward model for roles that have one (planner, executor), else that of the
    outcome reward model (judge, answerer), else 0. With a scorer that prefers wrong steps, lower `local`.

    Args:
        outcome: of the episode, as a sum over its rows.
        process: score of a step.
        result: score of a verdict or an answer.
        local: weight of the own score.
        shared: weight of the outcome.
        over: rows that share the outcome.

    >>> from palaestra.algebra.turns import Turns
    >>> rows = {"group": [0] * 3, "episode": [0] * 3, "process": [0.9, None, None], "outcome": [None, 1.0, None]}
    >>> mact_reward().evaluate(Turns(rows | {"reward": [None, None, 1.0]}))
    array([1.9, 2. , 1. ])
    """
    own = where(is_missing(process), fill_missing(result, 0.0), process)
    return local * own + shared * total(outcome, over=over)


@register()
def mact(reward: SignalLike = "reward", *, over: Keys = ("group", "policy")) -> Signal:
    """Signal: [143] MACT's advantage, each row's reward standardised over the rows of its group and policy (role).

    A role is a policy: several planners that propose beside each other are one role.
    """
    return standardise(as_signal(reward), over=over, unit="row")
