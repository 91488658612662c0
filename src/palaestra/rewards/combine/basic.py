"""Rewards that need nothing but the table."""

from __future__ import annotations

from palaestra.algebra.keys import on_last
from palaestra.algebra.returns import as_reward
from palaestra.algebra.signals import Signal, SignalLike, register, where


@register()
def penalty_invalid(valid: SignalLike = "valid", *, size: float = 0.1) -> Signal:
    """-size on each turn whose action was not legal, else 0; add it to a reward."""
    return where(as_reward("penalty_invalid", valid, option="size"), 0.0, -size)


@register()
def success_reward(reward: SignalLike = "success") -> Signal:
    """1 for success, on each agent's last turn of the episode, else 0; missing where nobody said."""
    return on_last(reward)
