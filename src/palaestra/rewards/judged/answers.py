"""Rewards of an answer and of its form."""

from __future__ import annotations

from palaestra.algebra.keys import is_last
from palaestra.algebra.signals import Keys, Signal, SignalLike, as_signal, register, where


@register()
def masksearch_reward(
    answer: SignalLike = "success",
    parsed: SignalLike = "parsed",
    *,
    weight: float = 0.1,
    over: Keys = ("group", "episode"),
) -> Signal:
    """Signal: answer's score plus `weight` if well-formed, on the episode's last row, 0 on others ([219]).

    The reward of MaskSearch's reinforcement learning (arXiv 2505.20285); the weight is a reconstruction.

    >>> from palaestra.algebra.turns import Turns
    >>> rows = {"group": [0] * 3, "episode": [0, 1, 1], "turn": [0, 0, 1], "agent": ["a"] * 3}
    >>> masksearch_reward().evaluate(Turns(rows | {"success": [True, None, False], "parsed": [True, None, True]}))
    array([1.1, 0. , 0.1])
    """
    return where(is_last(over=over), as_signal(answer) + float(weight) * as_signal(parsed), 0.0)
