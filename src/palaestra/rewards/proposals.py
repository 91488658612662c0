"""Pay of who proposes tasks: expressions of how often those tasks are solved.

A proposal's rows are those of its episode: one of who proposed it, one of each solver with `score`, one of each control
with `control_score` (env.workflow `proposer`).
"""

from __future__ import annotations

from typing import Literal, get_args

from palaestra.algebra.signals import (
    Keys,
    Signal,
    SignalLike,
    as_signal,
    clip,
    col,
    count,
    highest,
    is_in,
    is_missing,
    mean,
    register,
    standardise,
    where,
)
from palaestra.errors import ExpressionError, nearest

Pay = Literal["learnability", "challenge", "regret"]


@register()
def solve_rate(score: SignalLike = "score", *, over: Keys = "episode") -> Signal:
    """Signal: mean score p of the solvers' answers to a proposal (episode); missing where none was answered."""
    return mean(score, over=over)


@register()
def learnability(p: SignalLike | None = None) -> Signal:
    """Signal: proposer's reward 4·p·(1 - p) of a task with solve rate p, largest at p = 1/2.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"episode": [0, 0, 0, 0], "score": [1.0, 0.0, 0.0, 0.0]})
    >>> learnability().evaluate(turns)
    array([0.75, 0.75, 0.75, 0.75])
    """
    rate = solve_rate() if p is None else as_signal(p)
    return 4.0 * rate * (1.0 - rate)


@register()
def challenge(p: SignalLike | None = None) -> Signal:
    """Signal: proposer's reward 1 - p of a task with solve rate 0 < p < 1, else 0 (arXiv 2509.08721, 2505.03335).

    >>> from palaestra.algebra.turns import Turns
    >>> challenge("score").evaluate(Turns({"score": [0.25, 1.0, 0.0]}))
    array([0.75, 0.  , 0.  ])
    """
    rate = solve_rate() if p is None else as_signal(p)
    return where((rate > 0.0) & (rate < 1.0), 1.0 - rate, 0.0)


@register()
def regret(score: SignalLike = "score", *, control: SignalLike = "control_score", over: Keys = "episode") -> Signal:
    """Signal: estimated regret, best `control` score less the solvers' mean per episode, at least 0.

    arXiv 2012.02096.
    """
    return clip(highest(control, over=over) - mean(score, over=over), low=0.0)


@register()
def proposer_reward(
    pay: str = "learnability",
    *,
    refused: float = -1.0,
    repeated: float | None = None,
    alike: float = 0.0,
    seat: str = "proposer",
    reward: SignalLike = "reward",
) -> Signal:
    """Signal: in env `proposer` the proposer's reward by rule `pay` (learnability, challenge, regret); others `reward`.

    Args:
        pay: "learnability", "challenge" or "regret".
        refused: pay of a proposal that is no task.
        repeated: pay of one that was proposed before in this run, instead; needs the column `repeats` of the stage
            `task_table`. None: it does not count.
        alike: price of the share of this table's proposals that say the same: who always says the same loses all of
            it. R-Zero takes such a penalty of clusters (arXiv 2508.05004).
        seat: who proposes.
        reward: of the others.

    Raises:
        ExpressionError: there is no such pay, or the price is negative.
    """
    if pay not in get_args(Pay):
        raise ExpressionError(f"proposer_reward: pay={pay!r}{nearest(pay, get_args(Pay))}")
    if not alike >= 0:
        raise ExpressionError(f"proposer_reward: alike={alike} is a price, at least 0")
    worth = regret() if pay == "regret" else challenge() if pay == "challenge" else learnability()
    if repeated is not None:
        worth = where(col("repeats") > 0.0, float(repeated), worth)
    if alike:
        worth = worth - alike * count(over=("agent", "proposal")) / count(over="agent")
    return where(is_in("agent", seat), where(is_missing(solve_rate()), float(refused), worth), as_signal(reward))


@register()
def proposer_credit(*, seat: str = "proposer", reward: SignalLike = "reward", eps: float = 1e-6) -> Signal:
    """Signal: advantage, reward standardised separately for proposals and answers (arXiv 2505.03335).

    Proposals are compared with the others from the same given task, answers with the others to the same proposal, also
    where one policy sits in all seats.
    """
    proposes = is_in("agent", seat)
    return where(
        proposes,
        standardise(reward, over="group", where=proposes, eps=eps),
        standardise(reward, over=("episode", "policy"), where=~proposes, eps=eps),
    )
