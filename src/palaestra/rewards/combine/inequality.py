"""How unequally agents of an episode share something, as a signal: `gini("collected")`."""

from __future__ import annotations

from typing import Any

from palaestra.algebra.signals import (
    Keys,
    Signal,
    SignalLike,
    as_signal,
    count,
    cumulative,
    rank,
    ratio,
    register,
    total,
)


@register()
def gini(x: SignalLike = "reward", *, over: Keys = "episode", agent: Keys = "agent") -> Signal:
    """Signal: Gini coefficient in [0, 1) of the agents' sums of x per key (episode), on every row of the key.

    Σ_i Σ_j |x_i - x_j| / (2·n·Σ x).

    0 if all have the same, (n - 1) / n if one has everything. What an agent got is its sum over the key.

    Args:
        x: what is shared, not negative.
        over: whose agents are compared.
        agent: column that tells who is who.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"episode": [0, 0, 0], "agent": ["a", "b", "a"], "reward": [1.0, 2.0, 1.0]})
    >>> gini().evaluate(turns).tolist()
    [0.0, 0.0, 0.0]
    """
    keys, agents = _several(over), _several(agent)
    mine = (*keys, *agents)
    own = total(x, over=mine)
    last = cumulative(0.0 * as_signal(own) + 1.0, reverse=True, over=mine) == 1.0
    n, whole = count(own, over=keys, where=last), total(own, over=keys, where=last)
    ordered = total(rank(own, over=keys, where=last) * own, over=keys, where=last)
    return ratio(2.0 * ordered - (n + 1.0) * whole, n * whole)


def _several(keys: Keys) -> tuple[Any, ...]:
    return tuple(keys) if isinstance(keys, list | tuple) else (keys,)
