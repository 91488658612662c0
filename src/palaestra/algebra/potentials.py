"""Potentials: credit for what a step changed in some measure of how well things stand.

A potential is a column (a probe, a log-probability of the answer, a value) or any signal. Left out: how a probe is run;
it needs the model, so it is a stage.
"""

from __future__ import annotations

from palaestra.algebra.keys import in_first_turn, in_last_turn
from palaestra.algebra.signals import (
    Keys,
    Signal,
    SignalLike,
    as_signal,
    register,
    shift,
    where,
)


@register()
def potential_difference(
    phi: SignalLike,
    *,
    gamma: float = 1.0,
    first: SignalLike | None = None,
    terminal: SignalLike | None = None,
    over: Keys = ("episode", "agent"),
) -> Signal:
    """Signal: potential's change γ·Φ_t - Φ_{t-1} at each step; before the first Φ is `first`, or the credit is 0.

    terminal: look ahead instead, γ·Φ_{t+1} - Φ_t with Φ = terminal after the last step (potential-based shaping, where
    0 keeps the optimal policy; Ng, Harada and Russell 1999). With γ = 1 the sum over an episode telescopes.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"episode": [0] * 3, "agent": ["a"] * 3, "value": [0.2, 0.5, 0.9]})
    >>> potential_difference("value").evaluate(turns).round(3)
    array([0. , 0.3, 0.4])
    >>> potential_difference("value", terminal=1).evaluate(turns).round(3)
    array([0.3, 0.4, 0.1])
    """
    now = as_signal(phi)
    if terminal is not None:
        return gamma * where(in_last_turn(over=over), terminal, shift(now, n=-1, over=over)) - now
    if first is None:
        return where(in_first_turn(over=over), 0.0 * now, gamma * now - shift(now, n=1, over=over))
    return gamma * now - where(in_first_turn(over=over), first, shift(now, n=1, over=over))
