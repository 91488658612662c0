"""Reward for what an agent leaves out of its context, where the task succeeds."""

from __future__ import annotations

from typing import Literal

from palaestra.algebra.signals import Keys, Signal, SignalLike, as_signal, fill_missing, ratio, register, total, where
from palaestra.errors import ExpressionError

Gate = Literal["episode", "step"]


@register()
def omission_reward(
    score: SignalLike = "reward",
    observation: SignalLike = "saved_observation",
    thought: SignalLike = "saved_thought",
    context: SignalLike = "context",
    *,
    weight: float = 0.2,
    gate: Gate | None = "episode",
    over: Keys = ("episode", "agent"),
) -> Signal:
    """Signal: Agent-Omit's [66] (1 - w) · score + w · saved share of context; saved is 0 unless the episode scored.

    Source: arXiv 2602.04284.

    The saving of a turn is (saved_observation + saved_thought) / context. Its sum over an episode is δ, so an episode
    earns (1 - w) · score + w · δ in all. The workflow `omission` tells the three lengths.

    Args:
        score: Reward of the task.
        observation: Length of earlier responses that the turn left out.
        thought: Mean length of a message of the context where the thought is empty, else 0.
        context: Length of what was read.
        weight: w, in [0, 1].
        gate: Savings count in episodes whose score is above 0 ("episode"); in turns whose score is above 0, as the
            released code has it ("step"), where a reward at the end leaves the last turn alone; or always (None).
        over: Key of an agent's episode.

    Returns:
        float64[rows].

    Raises:
        ExpressionError: weight is out of range, or the gate is unknown.

    >>> from palaestra.algebra.turns import Turns
    >>> rows = {"episode": [0, 0], "agent": ["a"] * 2, "reward": [0.0, 1.0], "saved_thought": [0.0, 0.0]}
    >>> rows |= {"saved_observation": [300.0, 120.0], "context": [1500, 1600]}
    >>> float(omission_reward().evaluate(Turns(rows)).sum().round(6))
    0.855
    """
    if not 0 <= weight <= 1 or gate not in ("episode", "step", None):
        raise ExpressionError(f"omission_reward: weight={weight} in [0, 1], gate={gate!r} is 'episode', 'step' or None")
    paid = fill_missing(score, 0.0)
    saved = ratio(fill_missing(observation, 0.0) + fill_missing(thought, 0.0), as_signal(context))
    if gate is not None:
        earned = total(paid, over=over) if gate == "episode" else paid
        saved = where(earned > 0.0, saved, 0.0)
    return (1.0 - weight) * paid + weight * fill_missing(saved, 0.0)
