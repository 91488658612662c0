"""Rewards that need nothing but the table."""

from __future__ import annotations

from palaestra.algebra.keys import on_last
from palaestra.algebra.returns import as_reward
from palaestra.algebra.signals import Signal, SignalLike, as_signal, fill_missing, register, where


@register()
def penalty_invalid(valid: SignalLike = "valid", *, size: float = 0.1) -> Signal:
    """Signal: -size on each turn with an illegal action, else 0; to be added to a reward."""
    return where(as_reward("penalty_invalid", valid, option="size"), 0.0, -size)


@register()
def success_reward(reward: SignalLike = "success") -> Signal:
    """Signal: the episode's success, 1 or 0, on each agent's last turn, 0 on others; missing if unknown."""
    return on_last(reward)


@register()
def call_price(reward: SignalLike = "reward", calls: SignalLike = "calls", *, price: float = 0.1) -> Signal:
    """Signal: reward - `price` · `calls`, tool calls of the turn (unknown: 0), r - λ·calls ([53] arXiv 2601.14192).

    calls: of the turn; where they are unknown, none.

    >>> from palaestra.algebra.turns import Turns
    >>> call_price(price=0.1).evaluate(Turns({"reward": [1.0, 1.0], "calls": [2, None]}))
    array([0.8, 1. ])
    """
    return as_signal(reward) - price * fill_missing(as_signal(calls), 0.0)
