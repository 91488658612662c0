"""The verdict of an outcome model as a reward: one look at the end of an episode, yes or no."""

from __future__ import annotations

from palaestra.algebra.keys import is_last
from palaestra.algebra.signals import Keys, Signal, SignalLike, as_signal, register, where


@register()
def outcome_reward(
    yes: SignalLike = "yes", *, threshold: float = 0.5, over: Keys = ("group", "episode", "agent")
) -> Signal:
    """Signal: 1 on the last row if an outcome model's P(yes) >= threshold, else 0, as in WebRL (2411.02337).

    yes: P(yes) / (P(yes) + P(no)), on the last row. Missing there, so is the reward.

    >>> from palaestra.algebra.turns import Turns
    >>> rows = {"group": [0] * 4, "episode": [0, 0, 1, 2], "agent": ["a"] * 4, "yes": [None, 0.5, 0.49, 0.9]}
    >>> outcome_reward().evaluate(Turns(rows))
    array([0., 1., 0., 1.])
    """
    return where(is_last(over=over), where(as_signal(yes) >= float(threshold), 1.0, 0.0), 0.0)
