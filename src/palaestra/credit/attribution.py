"""Step flags and outcome in one advantage: a judge says of each step whether it helped, the outcome whether all did."""

from __future__ import annotations

from typing import Literal, get_args

from palaestra.algebra.keys import is_last
from palaestra.algebra.returns import episode_score
from palaestra.algebra.signals import (
    Signal,
    SignalLike,
    as_signal,
    cumulative,
    fill_missing,
    mean,
    register,
    standardise,
    total,
    where,
)
from palaestra.errors import ExpressionError, nearest

Attribution = Literal["decouple", "allocation"]
_SIZE = 0.2
"""Magnitude of a flag before standardisation; it matters only relative to eps."""


@register()
def agent_evolver(
    flag: SignalLike = "flag",
    score: SignalLike | None = None,
    *,
    alpha: float = 0.1,
    method: str = "decouple",
) -> Signal:
    """Signal: AgentEvolver's attribution [82] (2511.10395), sum to the end of α · step flags and the outcome, z-scores.

    Flags and outcome are summed from each step to the end.
    Flags are standardised in the group with equal weight for each episode: by the mean of the episodes' means, and the
    mean over episodes of the mean squared distance from it. A missing flag is that of the outcome.

    Args:
        flag: of a step, true if it helped; a judge's column.
        score: how the episode went; default: its agent's return.
        alpha: weight of the flags beside the standardised outcome, which stands on the last step.
        method: "decouple"; or "allocation": an episode's steps share its outcome's sign, a step whose flag disagrees
            gets a fifth of one whose flag agrees; no outcome is added and alpha does not count.

    Raises:
        ExpressionError: there is no such form.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"group": [0] * 5, "episode": [0, 0, 0, 1, 1], "turn": [0, 1, 2, 0, 1], "agent": ["a"] * 5,
    ...     "flag": [True, True, False, False, True], "reward": [0.0, 0.0, 1.0, 0.0, 0.0]})
    >>> agent_evolver().evaluate(turns).round(4)
    array([ 1.0507,  0.9662,  0.8817, -1.0338, -0.9155])
    """
    if method not in get_args(Attribution):
        raise ExpressionError(f"agent_evolver: method={method!r}{nearest(method, get_args(Attribution))}")
    outcome = episode_score(score)
    helped = fill_missing(as_signal(flag), outcome > 0.5) > 0.5
    if method == "allocation":
        good = outcome > 0.5
        weight = where(good, where(helped, 1.0, _SIZE), where(helped, _SIZE, 1.0))
        share = weight / total(weight, over=("episode", "agent"))
        return cumulative(_by_episode(where(good, share, -share)), reverse=True)
    steps = alpha * _by_episode(where(helped, _SIZE, -_SIZE))
    last = where(is_last(), standardise(outcome, over="group", unit="episode", ddof=0, eps=1e-8), 0.0)
    return cumulative(steps + last, reverse=True)


def _by_episode(x: Signal) -> Signal:
    """Standardised in the group, each episode with the same weight."""
    apart = x - mean(x, over="group", unit="episode")
    return apart / (mean(apart**2, over="group", unit="episode") + 1e-8) ** 0.5
