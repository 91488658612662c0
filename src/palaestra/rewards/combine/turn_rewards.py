"""Rewards of single turns: what intermediate steps of an episode earn, normalised by what can be earned."""

from __future__ import annotations

from palaestra.algebra.signals import (
    Keys,
    Signal,
    SignalLike,
    as_signal,
    clip,
    fill_missing,
    highest,
    register,
    total,
    where,
)


@register()
def dense_reward(
    gained: SignalLike = "gained",
    most: SignalLike = "most",
    *,
    won: SignalLike = "success",
    over: Keys = ("group", "episode"),
) -> Signal:
    """Signal: `gained` per turn / n, n = the turns that gained in a won episode, else `most`: at most 1 per episode.

    n is the number of turns with a positive intermediate reward if the episode was won, so that a won episode earns 1,
    and the task's maximum if it was not; at least 1. The sparse counterpart is `success_reward()`. A turn-level reward
    that a learner needs per token stands on the turn's last token: `on_last_token(dense_reward())`.

    Args:
        gained: Intermediate reward of each turn, 1 for a step of the task.
        most: Sum of intermediate rewards that the task offers, on each row.
        won: Whether the episode was won, on at least one of its rows.
        over: Key of an episode.

    Returns:
        One value per turn.

    Source: A Practitioner's Guide to Multi-turn Agentic Reinforcement Learning, arXiv 2510.01132.

    >>> from palaestra.algebra.turns import Turns
    >>> rows = {"group": [0] * 4, "episode": [0] * 4, "gained": [1.0, 0.0, 1.0, 0.0], "most": [5] * 4}
    >>> dense_reward().evaluate(Turns(rows | {"success": [None, None, None, False]}))
    array([0.2, 0. , 0.2, 0. ])
    """
    earned = as_signal(gained)
    finished = highest(fill_missing(won, 0.0), over=over) > 0.0
    steps = total(where(earned > 0.0, 1.0, 0.0), over=over)
    return earned / clip(where(finished, steps, most), low=1.0)
