"""Rewards from debates about decisions."""

from __future__ import annotations

from palaestra.algebra.signals import Signal, SignalLike, as_signal, register
from palaestra.errors import InputError


@register()
def debate_reward(
    weight: float = 0.25, *, reward: SignalLike = "reward", won: SignalLike = "debate_won", prize: float = 10.0
) -> Signal:
    """Signal: [162] (1 - weight) · reward + weight · prize · won, `won` 1 where the agent's decision won its debate.

    Args:
        weight: Of the debate in the mixture, in [0, 1]; 0 is the env's reward alone, 1 the debate's alone.
        reward: Reward of the env.
        won: 1 where the turn's decision won the debate about it, as the stage `debate` says.
        prize: Reward of a debate that was won.

    Raises:
        InputError: weight is not in [0, 1].

    >>> from palaestra.algebra.turns import Turns
    >>> debate_reward(0.25).evaluate(Turns({"reward": [1.0, 0.95], "debate_won": [0.0, 1.0]})).round(4)
    array([0.75  , 3.2125])
    """
    if not 0 <= weight <= 1:
        raise InputError(f"debate_reward: weight={weight} is not in [0, 1]")
    return (1.0 - weight) * as_signal(reward) + weight * prize * as_signal(won)
