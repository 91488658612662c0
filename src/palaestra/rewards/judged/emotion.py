"""[194] RLVER: the emotion of a simulated user as the reward; see `palaestra.envs.roles.SimulatedUser`."""

from __future__ import annotations

from palaestra.algebra.keys import on_last
from palaestra.algebra.potentials import potential_difference
from palaestra.algebra.signals import Keys, Signal, SignalLike, as_signal, clip, cumulative, register


@register()
def emotion(
    delta: SignalLike = "delta", *, start: float = 40.0, limit: float = 10.0, over: Keys = ("episode", "agent")
) -> Signal:
    """Signal: the user's emotion after each turn, 0 to 100: start + running sum of `delta`, each clipped to ± limit.

    The dialogue ends at 0 and at 100; a table that goes on beyond has the clipped sum.

    >>> from palaestra.algebra.turns import Turns
    >>> emotion().evaluate(Turns({"episode": [0] * 3, "agent": ["a"] * 3, "delta": [5, -20, 3]}))
    array([45., 35., 38.])
    """
    return clip(start + cumulative(clip(as_signal(delta), low=-limit, high=limit), over=over), low=0.0, high=100.0)


@register()
def rlver_reward(
    delta: SignalLike = "delta",
    *,
    start: float = 40.0,
    limit: float = 10.0,
    turnwise: bool = False,
    over: Keys = ("episode", "agent"),
) -> Signal:
    """Signal: [194] RLVER's reward, final emotion / 100 on the last turn; the running sum of `delta` is clipped.

    arXiv 2507.03112; the simulator's rules checked against its code.

    delta: what each reply changed, a column. turnwise: as a potential, each turn gets what it changed of emotion / 100;
    the sum is less by start / 100.
    """
    felt = emotion(delta, start=start, limit=limit, over=over) / 100.0
    if turnwise:
        return potential_difference(felt, first=start / 100.0, over=over)
    return on_last(felt, over=over)
