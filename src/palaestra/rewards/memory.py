"""Bounds: what keeps a score from being farmed once it is a reward.

A score per turn that is simply added up pays for more turns. Each function here makes the sum over an episode bounded,
by another rule: only bad steps count, only differences, only the sign, only the first time, only up to a limit. Left
out: the scores (they are columns), and the audits that show whether a reward needs a bound.
"""

from __future__ import annotations

from palaestra.algebra.fold import recurrence
from palaestra.algebra.keys import in_last_turn, joined, on_last
from palaestra.algebra.potentials import potential_difference
from palaestra.algebra.signals import (
    Keys,
    Signal,
    SignalLike,
    as_signal,
    clip,
    cumulative,
    fill_missing,
    mean,
    register,
    shift,
    sign,
    where,
)
from palaestra.errors import ExpressionError

AGENT: Keys = ("episode", "agent")


@register()
def clip_above(score: SignalLike, *, eta: float) -> Signal:
    """Signal: min(score - `eta`, 0), so that a step scoring at least `eta` earns 0 and a worse one is negative.

    >>> from palaestra.algebra.turns import Turns
    >>> clip_above("score", eta=0.8).evaluate(Turns({"score": [0.9, 0.6]})).round(9)
    array([ 0. , -0.2])
    """
    return clip(as_signal(score) - eta, high=0.0)


@register()
def delta(score: SignalLike, *, over: Keys = AGENT) -> Signal:
    """Signal: per step score_k - score_{k+1}; the last but one step keeps its score, the last earns 0.

    The last score is the outcome's.

    The return-to-go from step k is score_k and the whole sum score_1, whatever lies between: with the last score taken
    as 0 this is potential-based shaping with its sign turned. Under credit that knows only the sum (GRPO) it collapses
    to the first score. An episode of one step has 0, one without any score has nothing.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"episode": [0] * 4, "agent": ["a"] * 4, "score": [0.9, 0.6, 0.95, 0.9]})
    >>> delta("score").evaluate(turns).round(9)
    array([ 0.3 , -0.35,  0.95,  0.  ])
    """
    end = 0.0 * mean(score, over=over)
    return 0.0 - potential_difference(where(in_last_turn(over=over), end, score), terminal=0.0, over=over)


@register()
def clip_and_delta(
    score: SignalLike = "score",
    success: SignalLike = "success",
    *,
    alpha: float = 0.5,
    eta: float = 0.8,
    clipped: bool = True,
    differences: bool = True,
    over: Keys = AGENT,
) -> Signal:
    """Signal: [26] α · delta(min(score - η, 0)) per step, plus success on the agent's last turn.

    arXiv 2410.15115.

    score: of a process reward model, per turn. clipped, differences: leave out one of the two, or both (the plain sum,
    which is farmed by repeating a good step). To be used with `return_to_go`, not with a sum over the episode. α and η
    are those of the trial here; the formulas are from a secondary text that agrees with the abstract.
    """
    step = clip_above(score, eta=eta) if clipped else as_signal(score)
    step = delta(step, over=over) if differences else step
    return alpha * step + on_last(success, over=over)


@register()
def sign_scale(x: SignalLike, *, size: float = 1.0) -> Signal:
    """Signal: size · sgn(x), so that only the sign of a generated reward counts.

    [34] Auto MC-Reward (arXiv 2312.09238): sign_scale(sparse) + sign_scale(dense, size=0.1), which is 0, ±0.1, ±0.9, ±1
    or ±1.1.
    """
    return size * sign(x)


@register()
def once(x: SignalLike, *, key: Keys = (), over: Keys = AGENT) -> Signal:
    """Signal: x on the first turn of an agent's episode where it is not 0, else 0; with a key, once per key value.

    A missing x stays missing and is not counted.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"episode": [0] * 4, "agent": ["a"] * 4, "room": [1, 2, 1, 2], "reward": [0.0, 1.0, 1.0, 1.0]})
    >>> once("reward", key="room").evaluate(turns)
    array([0., 1., 1., 0.])
    """
    value = as_signal(x)
    given = cumulative(fill_missing(value, 0.0) != 0.0, exclusive=True, over=joined(over, key))
    return where(given > 0.0, 0.0 * value, value)


@register()
def cap(x: SignalLike, *, limit: float, over: Keys = AGENT) -> Signal:
    """Signal: x reduced so that its running sum per agent and episode never exceeds `limit`.

    What was earned beyond the limit is a cushion for later losses. A missing x adds nothing. With a key of several
    agents those that act at once fill it in the order of names.

    Raises:
        ExpressionError: the limit is negative.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"episode": [0] * 4, "agent": ["a"] * 4, "reward": [1.5, 1.0, 1.0, -0.5]})
    >>> cap("reward", limit=2).evaluate(turns)
    array([1.5, 0.5, 0. , 0. ])
    """
    value, limit = as_signal(x), float(limit)
    if limit < 0:
        raise ExpressionError(f"cap: limit={limit} is negative; before the first turn the sum is 0")
    spent = recurrence(1.0, fill_missing(value, 0.0), over=over)
    free = (spent <= limit) & (spent - fill_missing(value, 0.0) <= limit)
    held = clip(spent, high=limit)
    before = clip(spent - fill_missing(value, 0.0), high=limit)
    return where(free, value, held - before + 0.0 * value)


@register()
def first_satisfied(
    item: SignalLike, depends_on: SignalLike | tuple[SignalLike, ...] = (), *, over: Keys = AGENT
) -> Signal:
    """Signal: 1 on the first turn by which the item and all it depends on have been true; 0 on other turns.

    item, depends_on: masks or verdicts per turn; a missing one counts as no. An item that was true before what it
    depends on is credited when that is.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"episode": [0] * 3, "agent": ["a"] * 3, "found": [1, 0, 0], "asked": [0, 1, 0]})
    >>> first_satisfied("found", "asked").evaluate(turns)
    array([0., 1., 0.])
    """
    needed = depends_on if isinstance(depends_on, tuple) else (depends_on,)
    if any(isinstance(each, tuple) for each in needed):
        raise ExpressionError(f"first_satisfied: depends_on={depends_on!r}; give signals")
    met = fill_missing(1.0 * (as_signal(item) != 0.0), 0.0)
    met = 1.0 * (cumulative(met, over=over) > 0.0)
    for each in needed:
        met = met * (cumulative(fill_missing(1.0 * (as_signal(each) != 0.0), 0.0), over=over) > 0.0)
    return met - shift(met, n=1, over=over, fill=0.0)
