"""Labels of steps from what happens when they are gone on with, and the choice of one answer among several."""

from __future__ import annotations

from typing import Literal

from palaestra.algebra.keys import joined, rank_among
from palaestra.algebra.signals import (
    Keys,
    Signal,
    SignalLike,
    as_signal,
    col,
    count,
    fill_missing,
    highest,
    is_missing,
    lowest,
    mean,
    register,
    shift,
    where,
)
from palaestra.errors import ExpressionError


def _next(value: SignalLike, last: SignalLike) -> Signal:
    """The value of the agent's next turn; of its last turn `last`."""
    ahead = shift(value, n=-1)
    end = is_missing(shift(1.0, n=-1))
    return where(end, last, ahead)


@register()
def potential_label(value: SignalLike = "value", success: SignalLike = "success") -> Signal:
    """Signal: step label, 1 in a success, else 1 if any continuation after the step succeeds (`value` > 0), else 0.

    UI-Genie [43] (arXiv 2505.21496), k = 5: `value` is the mean of what k continuations from each turn earn, which is
    never below 0, as `mc_values(k=5)` fills it; a step is positive if that of the next turn is above 0. A step
    after which a share q succeeds is labelled 0 by mistake with a chance of (1 - q)^k. Where success is unknown
    the label is missing.

    >>> from palaestra.algebra.turns import Turns
    >>> keys = {"episode": [0, 0, 0], "turn": [0, 1, 2], "agent": ["a"] * 3}
    >>> turns = Turns(keys | {"value": [0.4, 0.2, 0.0], "success": [False] * 3})
    >>> potential_label().evaluate(turns)
    array([1., 0., 0.])
    """
    won = as_signal(success)
    return where(won == 1, 1.0, where(won == 0, _next(value, 0.0) > 0))


@register()
def value_label(value: SignalLike = "value", success: SignalLike = "success") -> Signal:
    """Signal: step label Q, the `value` of the agent's next turn (mean of continuations), on the last turn `success`.

    >>> from palaestra.algebra.turns import Turns
    >>> keys = {"episode": [0, 0], "turn": [0, 1], "agent": ["a"] * 2}
    >>> turns = Turns(keys | {"value": [0.4, 0.2], "success": [True, True]})
    >>> value_label().evaluate(turns)
    array([0.2, 1. ])
    """
    return _next(value, success)


@register()
def hard_negatives(score: SignalLike, label: SignalLike, *, above: float = 0.5) -> Signal:
    """Signal, a mask: 1 where `label` is 0 and yet `score` > `above` ([43]), to train a reward model; else 0.

    Missing labels or scores are no negatives.

    >>> from palaestra.algebra.turns import Turns
    >>> hard_negatives("p", "label").evaluate(Turns({"p": [0.9, 0.9, 0.2], "label": [0.0, 1.0, 0.0]}))
    array([1., 0., 0.])
    """
    return fill_missing((as_signal(label) == 0) & (as_signal(score) > above), 0.0)


@register()
def best_of_n(
    score: SignalLike,
    *,
    n: int | None = None,
    ties: Literal["first", "vote"] = "first",
    answer: str = "action",
    over: Keys = "group",
) -> Signal:
    """Signal, a mask: 1 on the rows of the episode of highest mean score in each key, of its first `n`; else 0.

    The score is the mean over the episode; one that is missing is not taken. ties: of equal scores the first, or
    "vote": the one whose `answer` is the commonest among them, of these the first.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"group": [0] * 4, "episode": [0, 1, 2, 3], "s": [1, 3, 3, 3], "action": ["a", "b", "c", "c"]})
    >>> best_of_n("s").evaluate(turns), best_of_n("s", ties="vote").evaluate(turns), best_of_n("s", n=1).evaluate(turns)
    (array([0., 1., 0., 0.]), array([0., 0., 1., 0.]), array([1., 0., 0., 0.]))
    """
    if ties not in ("first", "vote") or (n is not None and n < 1):
        raise ExpressionError(f"best_of_n: ties={ties!r} is 'first' or 'vote', n={n} at least 1")
    value = mean(score, over="episode")
    episode = col("episode")
    best = value == highest(value, over=over)
    if n is not None:
        first = where(rank_among("episode", over=over, ties="dense") <= float(n), value)
        best = first == highest(first, over=over)
    if ties == "vote":
        votes = where(best, count(1.0, over=(*joined(over), answer), unit="episode", where=best))
        best = best & (votes == highest(votes, over=over))
    return fill_missing(best & (episode == lowest("episode", over=over, where=best)), 0.0)
