"""Rewards by role: one line says what each agent of a team is paid for."""

from __future__ import annotations

from functools import reduce

from palaestra.algebra.signals import Signal, SignalLike, as_signal, is_in, register, where


@register()
def by_role(
    first: tuple[str | tuple[str, ...], SignalLike],
    *others: tuple[str | tuple[str, ...], SignalLike],
    otherwise: SignalLike | None = None,
) -> Signal:
    """Signal: a reward chosen by the row's agent, from pairs (agent or tuple of agents, reward); else `otherwise`.

    For example `by_role(("solver", "score"), ("critic", complement("score")))`.

    A case names one agent, or several in a tuple. Agents that no case names get `otherwise`; without it their reward is
    missing, and they take no part.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"agent": ["solver", "critic", "judge"], "score": [0.75, 0.75, 0.75]})
    >>> by_role(("solver", "score"), ("critic", complement("score")), otherwise=0.0).evaluate(turns)
    array([0.75, 0.25, 0.  ])
    """
    missing = where(as_signal(0.0), 0.0)
    rest = missing if otherwise is None else as_signal(otherwise)
    return reduce(lambda later, case: where(is_in("agent", case[0]), case[1], later), reversed((first, *others)), rest)


@register()
def complement(score: SignalLike, *, total: float = 1.0) -> Signal:
    """Signal: total - score, the reward of the opponent in a pair whose rewards sum to `total`."""
    return total - as_signal(score)


@register()
def neutral(parsed: SignalLike = "valid", *, penalty: float = 1.0) -> Signal:
    """Signal: reward of a scorer, 0 if its answer was readable and -penalty else, whatever its score (CoMAS).

    arXiv 2510.08529.
    """
    return where(parsed, 0.0, -penalty)
