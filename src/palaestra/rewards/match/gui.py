"""Rewards of a step on a screen: action type, coordinates, content, format; each a component of its own.

Boxes and their overlap are in `graded`. Left out: how an action is read out of text, and what a screen looks like.
"""

from __future__ import annotations

import numpy as np

from palaestra.algebra.kernels import Evaluation, kernel
from palaestra.algebra.keys import is_scored
from palaestra.algebra.signals import (
    Keys,
    Signal,
    SignalLike,
    as_signal,
    clip,
    fill_missing,
    highest,
    mean,
    register,
    where,
)
from palaestra.errors import ExpressionError
from palaestra.rewards.match.graded import hit, tier
from palaestra.rewards.match.words import matrix, point_in_box, text_of, token_f1


@register()
def same_text(one: str, other: str) -> Signal:
    """Signal: 1 where two text columns are exactly equal, else 0, also where one is missing."""
    return as_signal((text_of(one) == text_of(other)).fill_null(False))


@register()
def distance(point: SignalLike, gold: SignalLike, *, box: SignalLike | None = None) -> Signal:
    """Signal: Euclidean distance of two points, list columns (x, y); missing without one.

    box: of a target, (left, top, right, bottom); then half its width and half its height are the units.
    """
    inputs = (point, gold) if box is None else (point, gold, box)
    return Signal("distance", *map(as_signal, inputs))


@kernel("distance", range="row")
def _distance(evaluation: Evaluation, node: Signal) -> np.ndarray:
    one, other = (matrix(evaluation, child, 2, node) for child in node.inputs[:2])
    apart = one - other
    if len(node.inputs) == 3:
        box = matrix(evaluation, node.inputs[2], 4, node)
        size = (box[:, 2:] - box[:, :2]) / 2
        apart /= np.where(size > 0, size, np.nan)
    return np.asarray(np.hypot(*apart.T))


@register()
def ui_r1_reward(
    action: str,
    gold_action: str,
    point: SignalLike,
    box: SignalLike,
    *,
    format: SignalLike = 0.0,
    clicks: tuple[str, ...] = ("click",),
    scale: SignalLike = 1.0,
) -> Signal:
    """Signal: [173] UI-R1 (arXiv 2503.21620), right action type + coordinate (`point` in `box`) + format, each 0 or 1.

    R_type: the action's type is right. R_coord: then 1, for a click only if its point lies in the gold box (edges
    included). Missing where the gold action, or for a click its box, is. format: a mask, e.g.
    `tag_format("action", ("think", "answer"))`. Checked against the released code.
    """
    right = _right(action, gold_action)
    inside = where(is_scored(box), fill_missing(point_in_box(point, box, scale), 0.0))
    click = as_signal(text_of(gold_action).is_in(list(clicks)).fill_null(False))
    return right + where(right, where(click, inside, 1.0), 0.0) + as_signal(format)


def _right(action: str, gold: str) -> Signal:
    """`same_text`, missing where nobody says what would have been right."""
    return where(as_signal(text_of(gold).is_not_null()), same_text(action, gold))


@register()
def length_aware(
    reward: SignalLike, *, length: SignalLike = "tokens_out", best: float = 3.0, over: Keys = "group"
) -> Signal:
    """Signal: UI-R1-E, reward plus a length term: where reward >= `best` above 0, larger if shorter; else below 0.

    A full reward gets max(0.5 - 0.5·λ, 0.1), another one min(0.9·λ - 0.1, -0.1).

    λ = (L - L_b)/L_b; L_b = p·L_r + (1 - p)·L_max, p the share of full rewards in the group, L_r their mean length.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"group": [0] * 4, "reward": [3, 3, 2, 1], "tokens_out": [40, 80, 60, 100]})
    >>> length_aware("reward").evaluate(turns)
    array([3.75 , 3.5  , 1.675, 0.9  ])
    """
    r = as_signal(reward)
    size = where(is_scored(r), length)
    full = r >= best
    share = mean(full, over=over)
    bound = share * fill_missing(mean(size, over=over, where=full), 0.0) + (1.0 - share) * highest(size, over=over)
    excess = (size - bound) / bound
    return r + where(full, clip(0.5 - 0.5 * excess, low=0.1), clip(0.9 * excess - 0.1, high=-0.1))


@register()
def ui_venus_grounding(
    box: SignalLike, target: SignalLike, *, format: SignalLike = 0.0, weights: tuple[float, float] = (0.1, 0.9)
) -> Signal:
    """Signal: [193] UI-Venus grounding, w1 · format + w2 · 1[the box's centre lies in the gold box].

    arXiv 2508.10833.

    Missing without a gold box.
    """
    return weights[0] * as_signal(format) + weights[1] * where(is_scored(target), fill_missing(hit(box, target), 0.0))


@register()
def scroll_reward(start: SignalLike, end: SignalLike, direction: SignalLike, *, value: float = 1.0) -> Signal:
    """Signal: from three masks, 1.5 · value if all hold, value without `end`, half for start or direction alone.

    0 if neither of these two holds, and for an end alone.
    """
    begun, ended, way = (as_signal(each) != 0.0 for each in (start, end, direction))
    return value * where(begun & way, where(ended, 1.5, 1.0), where(begun | way, 0.5, 0.0))


@register()
def ui_venus_navigation(
    action: str,
    gold_action: str,
    *,
    coordinates: SignalLike = 0.0,
    content: SignalLike = 0.0,
    format: SignalLike = 0.0,
    weights: tuple[float, float] = (0.1, 0.9),
) -> Signal:
    """Signal: [193] UI-Venus navigation, w1 · format + w2 · (1 + coordinates + content where action = gold_action).

    coordinates: `stepwise_point(...)` for clicks, `scroll_reward(...)` for scrolls; content: `content_reward(...)`.
    The paper does not give its weights and thresholds; those here are reconstructions. Formulas from its text.
    """
    right = _right(action, gold_action)
    detail = fill_missing(coordinates, 0.0) + fill_missing(content, 0.0)
    return weights[0] * as_signal(format) + weights[1] * (right + where(right, detail, 0.0))


@register()
def stepwise_point(
    point: SignalLike, gold: SignalLike, *, near: float = 10.0, far: float = 40.0, value: float = 1.0
) -> Signal:
    """Signal: reward of a click, `value` within `near` of the gold point, half of it within `far`, else 0."""
    return value * tier(distance(point, gold), edges=(near, far), levels=(1.0, 0.5))


@register()
def content_reward(text: str, gold: str, *, threshold: float = 0.5, value: float = 1.0) -> Signal:
    """Signal: `value` if the word F1 of two text columns is at least `threshold`, else 0."""
    return value * (token_f1(text, gold) >= threshold)


@register()
def hybrid_reward(
    rule: SignalLike, judge: SignalLike, needs_judge: SignalLike, *, weights: tuple[float, float] = (1.0, 1.0)
) -> Signal:
    """Signal: [204] CRAFT-GUI, w_r · rule, plus w_j · judge on rows where `needs_judge` (arXiv 2508.11360).

    rule: components of the action, 0 where there is none. judge: a score in [0, 1], missing where the judge failed,
    which leaves the row without a reward. Reconstruction from the abstract.

    Raises:
        ExpressionError: a weight is negative.
    """
    if min(weights) < 0:
        raise ExpressionError(f"hybrid_reward: weights={weights} must not be negative")
    return weights[0] * fill_missing(rule, 0.0) + where(needs_judge, weights[1] * as_signal(judge), 0.0)
