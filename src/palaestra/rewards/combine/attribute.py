"""Attribution: one outcome of an episode spread over the turns that made it, by what a judge says of each.

The outcome and the judge's numbers are columns; here is only how they become a reward per turn. Left out: the judge,
and the reward model that Sotopia-RL fits to these rewards.
"""

from __future__ import annotations

from functools import reduce
from typing import Literal

from palaestra.algebra.signals import (
    Keys,
    Signal,
    SignalLike,
    as_signal,
    cumulative,
    fill_missing,
    highest,
    ratio,
    register,
    shift,
    standardise,
    total,
    where,
)
from palaestra.credit.weights import minmax
from palaestra.errors import ExpressionError, nearest

Method = Literal["importance", "normalised", "discount", "key", "progress", "uniform"]
AGENT: Keys = ("episode", "agent")


@register()
def attribute(
    outcome: SignalLike,
    weight: SignalLike | None = None,
    *,
    method: Method = "importance",
    top: float | None = None,
    gamma: float = 0.9,
    over: Keys = AGENT,
) -> Signal:
    """Signal: the episode's `outcome` attributed to each turn by `weight`, by default weight / top · outcome ([169]).

    Source: Sotopia-RL, arXiv 2508.03905.

    importance: weight/top · outcome, weight in 0 … top; a weight of -1 (harmful) earns -1. normalised: weight / Σ
    weight · outcome, 0 if Σ = 0. discount: γ^(turns that follow) · outcome. key: the outcome for the turn of largest
    weight (the first of equals), 0 for others. progress: (weight - weight before)/top · outcome, weight the progress so
    far, before the first turn 0. uniform: the outcome for each turn. top: the judge's largest weight; default 3, for
    progress 10. over: whose turns they are. Checked against the released code, in which a weight that the judge did not
    give is 0; here it is missing.

    Raises:
        ExpressionError: `method` is unknown, or needs a weight and has none.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"episode": [0] * 4, "agent": ["a"] * 4, "weight": [3, 1, 0, -1], "score": [8] * 4})
    >>> attribute("score", "weight").evaluate(turns).round(3)
    array([ 8.   ,  2.667,  0.   , -1.   ])
    """
    known = ("importance", "normalised", "discount", "key", "progress", "uniform")
    if method not in known:
        raise ExpressionError(f"attribute: method={method!r}{nearest(str(method), known)}")
    score = as_signal(outcome)
    if method == "uniform":
        return 1.0 * score
    if method == "discount":
        following = cumulative(1.0, reverse=True, over=over) - 1.0
        return as_signal(gamma) ** following * score
    if weight is None:
        raise ExpressionError(
            f"attribute: method={method!r} needs a weight per turn, e.g. attribute('score', 'importance')"
        )
    a, top = as_signal(weight), (10.0 if method == "progress" else 3.0) if top is None else float(top)
    if method == "importance":
        return where(a == -1.0, -1.0, a / top * score)
    if method == "normalised":
        return ratio(a, total(a, over=over)) * score
    if method == "progress":
        return (a - shift(a, n=1, over=over, fill=0.0)) / top * score
    largest = 1.0 * (a == highest(a, over=over))
    before = cumulative(fill_missing(largest, 0.0), exclusive=True, over=over)
    return largest * (before == 0.0) * score


@register()
def single_utterance(score: SignalLike = "reward", *, over: Keys = ("group", "state"), eps: float = 1e-6) -> Signal:
    """Signal: [169] (score - mean) / (std + eps) over the replies to the same state in the group; 0 if alone.

    Every turn is a bandit of its own; where no other reply to it was heard, 0.
    """
    return standardise(score, over=over, eps=eps, singleton="zero")


@register()
def sotopia_reward(
    dimension: tuple[SignalLike, SignalLike],
    *others: tuple[SignalLike, SignalLike],
    method: Method = "importance",
    top: float | None = None,
    over: Keys = AGENT,
    scope: Keys = (),
) -> Signal:
    """Signal: [169] Sotopia-RL's turn reward of pairs (outcome, weight): 10 · mean min-max scaled attribution.

    Each is brought to [0, 1] over `scope`.

    dimensions: (outcome, weight) of each, e.g. ("goal", "goal_importance"), ("knowledge", "knowledge_importance").
    """
    parts = []
    for each in (dimension, *others):
        if not isinstance(each, tuple) or len(each) != 2:
            raise ExpressionError(f"sotopia_reward: {each!r} is not a dimension (outcome, weight)")
        parts.append(minmax(attribute(*each, method=method, top=top, over=over), over=scope))
    return 10.0 * reduce(Signal.__add__, parts) / float(len(parts))
