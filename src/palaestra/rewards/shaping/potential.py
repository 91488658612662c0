"""Shaping and progress: rewards for how far things have come, that do not pay for staying there.

`shape` is the one implementation, with both of its boundaries in sight; the others build the potential: hops between
observations, their fusion, distances, new bests. What demonstrations teach is in `demonstrations`. Left out: the
models that score a hop; their scores are columns.
"""

from __future__ import annotations

from typing import Literal

from palaestra.algebra.fold import recurrence, running_max
from palaestra.algebra.keys import is_first, on_last
from palaestra.algebra.potentials import potential_difference
from palaestra.algebra.signals import (
    Keys,
    Signal,
    SignalLike,
    absolute,
    as_signal,
    clip,
    count,
    cumulative,
    exp,
    fill_missing,
    is_missing,
    rank,
    ratio,
    register,
    shift,
    sign,
    total,
    where,
)
from palaestra.errors import ExpressionError, nearest

AGENT: Keys = ("episode", "agent")


@register()
def shape(
    phi: SignalLike,
    *,
    gamma: float = 1.0,
    terminal: SignalLike = 0.0,
    truncated: SignalLike = "bootstrap",
    over: Keys = AGENT,
) -> Signal:
    """Signal: potential-based shaping γ·Φ' - Φ, Φ' at the agent's next turn; at the end 0 (`terminal`), if cut off Φ.

    Ng et al. 1999; it is added to a reward.

    After the last turn Φ' is `terminal` in an episode that ended by its rules: 0 keeps the optimal policy, anything
    else pays for where it ends. In one that was cut off (column `truncated`) it is Φ itself, as if one more turn
    changed nothing ("bootstrap"), or the given column: the potential of the state after the cut.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"episode": [0, 0, 1], "agent": ["a"] * 3, "phi": [0.2, 0.8, 0.8], "truncated": [0, 0, 1]})
    >>> shape("phi", gamma=0.9).evaluate(turns).round(9)
    array([ 0.52, -0.8 , -0.08])
    """
    after = as_signal(phi if isinstance(truncated, str) and truncated == "bootstrap" else truncated)
    end = where(fill_missing("truncated", False), after, terminal)
    return potential_difference(phi, gamma=gamma, terminal=end, over=over)


# -- progress ---------------------------------------------------------------------------------------------------------


@register()
def hop(before: SignalLike, after: SignalLike) -> Signal:
    """Signal: relative progress from `before` p to `after` q, in [-1, 1]: (q - p) / (1 - p), for a loss (q - p) / p.

    (q - p) / (1 - p) if q >= p, else (q - p) / p. The label on which Robo-Dopamine's model is trained.
    """
    p, q = as_signal(before), as_signal(after)
    return where(q >= p, ratio(q - p, 1.0 - p), ratio(q - p, p))


@register()
def hop_progress(
    score: SignalLike = "hop",
    *,
    method: Literal["incremental", "forward", "backward"] = "incremental",
    over: Keys = AGENT,
) -> Signal:
    """Signal: progress in [0, 1] at each turn, accumulated from a model's predicted hops.

    incremental: hops from the turn before (the first counts as 0): Φ + (1 - Φ)·H if H >= 0, else Φ + Φ·H. forward: hops
    from the initial observation, Φ = H. backward: hops from the goal, Φ = 1 + H.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"episode": [0] * 4, "agent": ["a"] * 4, "hop": [None, 0.3, 0.4285714, -0.3333333]})
    >>> hop_progress().evaluate(turns).round(4)
    array([0. , 0.3, 0.6, 0.4])
    """
    h = as_signal(score)
    if method == "forward":
        return h
    if method == "backward":
        return 1.0 + h
    if method != "incremental":
        raise ExpressionError(
            f"hop_progress: method={method!r}{nearest(str(method), ['incremental', 'forward', 'backward'])}"
        )
    h = where(is_first(over=over), 0.0, h)
    return recurrence(1.0 - absolute(h), clip(h, low=0.0), over=over)


@register()
def fuse(
    incremental: SignalLike,
    forward: SignalLike,
    backward: SignalLike,
    *,
    method: Literal["mean", "consistency"] = "mean",
    alpha: float = 1.0,
    over: Keys = AGENT,
) -> Signal:
    """Signal: progress fused from `incremental`, `forward`, `backward`: mean, or with "consistency" a recurrence.

    It trusts the two anchored ones where they agree.

    consistency: m = (F + B)/2, d = |B - F| / m, w = exp(-α·d²); Φ ← Φ + w/2 · (m - Φ + ΔI), from 0. With w = 0 the old
    value stays.
    """
    i, f, b = map(as_signal, (incremental, forward, backward))
    if method == "mean":
        return (i + f + b) / 3.0
    if method != "consistency":
        raise ExpressionError(f"fuse: method={method!r}{nearest(str(method), ['mean', 'consistency'])}")
    m = (f + b) / 2.0
    half = exp(-float(alpha) * (absolute(b - f) / (m + 1e-6)) ** 2.0) / 2.0
    return recurrence(1.0 - half, half * (m + i - shift(i, n=1, over=over, fill=0.0)), over=over)


@register()
def closeness(
    distance: SignalLike,
    *,
    scale: float,
    dispersion: float = 1.0,
    density: float = 1.0,
    signed: bool = False,
) -> Signal:
    """Signal: exp(-½ · distance / (scale · dispersion)) ** (1 / density), in (0, 1]: Lucy-SKG's component [21].

    signed: brought to (-1, 1] before the power, which then keeps the sign. The released code raises to `density`.

    Raises:
        ExpressionError: scale, dispersion or density is not positive.
    """
    if min(scale, dispersion, density) <= 0:
        raise ExpressionError(f"closeness: {scale=}, {dispersion=} and {density=} must be positive")
    near = exp(-0.5 * as_signal(distance) / (float(scale) * float(dispersion)))
    if not signed:
        return near ** (1.0 / density)
    wide = 2.0 * near - 1.0
    return sign(wide) * absolute(wide) ** (1.0 / density)


@register()
def cum_max_gain(progress: SignalLike, *, start: float = 0.0, over: Keys = AGENT) -> Signal:
    """Signal: gain of progress over its best so far in the episode (at first `start`), else 0.

    The sum over an episode is best - start. `sign` of it is 1 on each new best.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"episode": [0] * 5, "agent": ["a"] * 5, "progress": [0.0, 0.5, 0.25, 0.5, 1.0]})
    >>> cum_max_gain("progress").evaluate(turns)
    array([0. , 0.5, 0. , 0. , 0.5])
    """
    best = fill_missing(shift(running_max(progress, over=over), n=1, over=over), float(start))
    return clip(as_signal(progress) - where(best < float(start), float(start), best), low=0.0)


@register()
def voc(progress: SignalLike, *, over: Keys = AGENT) -> Signal:
    """Signal: value-order correlation, Spearman's of progress with time, on each row of the episode; 0 if constant.

    1 for progress that only rises, -1 for play shown backwards.
    """
    scored = ~is_missing(progress)
    a, n = rank(progress, over=over), count(progress, over=over)
    b = rank(where(scored, cumulative(1.0 * scored, over=over)), over=over)  # of time
    middle = n * ((n + 1.0) / 2.0) ** 2.0  # sums of ranks are exact: a constant gives exactly 0
    spread = (total(a * a, over=over) - middle) * (total(b * b, over=over) - middle)
    return ratio(total(a * b, over=over) - middle, spread**0.5)


# -- named rewards ----------------------------------------------------------------------------------------------------


@register()
def robo_dopamine(
    progress: SignalLike = "progress",
    *,
    gamma: float = 0.99,
    threshold: float = 0.95,
    truncated: SignalLike = "bootstrap",
    once: bool = True,
) -> Signal:
    """Signal: [14] Robo-Dopamine's reward 1[Φ' >= threshold] + γ·Φ' - Φ (arXiv 2512.23703), its 1 paid once.

    In the shaping Φ' = 0 at the end.

    The paper writes the 1 for each turn (`once=False`): who waits where Φ >= threshold is then paid again and again,
    unless the episode ends there. By default only the first turn that brings progress over the threshold earns it.

    After the agent's last turn, `success` says whether the goal was reached, and pays 1 itself; an episode of which it
    does not has no reward. γ = 1 in the shaping with γ < 1 in the return would pay for waiting where progress is high.
    The paper argues for endless episodes and does not say what happens at their end; 0 is what keeps the optimal
    policy.

    >>> from palaestra.algebra.turns import Turns
    >>> there = {"progress": [0.5, 0.96, 0.96], "success": [False] * 3, "truncated": [True] * 3}
    >>> turns = Turns({"episode": [0] * 3, "agent": ["a"] * 3} | there)
    >>> robo_dopamine(gamma=1.0).evaluate(turns).round(9)
    array([1.46, 0.  , 0.  ])
    >>> robo_dopamine(gamma=1.0, once=False).evaluate(turns).round(9)
    array([1.46, 1.  , 0.  ])
    """
    last = shift(1.0, n=-1, fill=0.0) == 0.0
    above = shift(progress, n=-1) >= threshold
    if once:
        above = above & (running_max(progress, over=AGENT) < threshold)
    reached = where(last, "success", 0.0 * as_signal("success") + above)
    return 1.0 * reached + shape(progress, gamma=gamma, truncated=truncated)


@register()
def supervoxel_reward(
    loss: SignalLike = "ce",
    after: SignalLike = "ce_after",
    edge: SignalLike = "edge",
    *,
    most: float = 3.0,
    width: float = 2.0,
) -> Signal:
    """Signal: [5] boundary-aware reward w · (loss - loss after), w = 1 + (most - 1) · exp(-edge / width).

    Each cell is paid for what it gained itself: shaping with γ = 1 and Φ = -w · loss. loss: cross-entropy of the cell
    before its turn, and `after` the last. edge: how far the cell is from the true boundary. most=1 weighs all cells
    alike. A reconstruction from the abstract.

    Raises:
        ExpressionError: width is not positive.

    >>> from palaestra.algebra.turns import Turns
    >>> cell = {"episode": [0] * 2, "agent": ["a"] * 2, "ce": [0.9, 0.5], "ce_after": [0.5, 0.3], "edge": [0.0] * 2}
    >>> supervoxel_reward().evaluate(Turns(cell)).round(9)
    array([1.2, 0.6])
    """
    if width <= 0:
        raise ExpressionError(f"supervoxel_reward: {width=} must be positive")
    weight = 1.0 + (float(most) - 1.0) * exp(-as_signal(edge) / float(width))
    return potential_difference(-weight * as_signal(loss), terminal=-weight * as_signal(after), over=AGENT)


@register()
def era_reward(
    progress: SignalLike = "task_progress",
    *,
    success: SignalLike = "success",
    valid: SignalLike = "valid",
    shaped: SignalLike = 1.0,
    worth: float = 3.0,
    penalty: float = 0.5,
) -> Signal:
    """Signal: [184] ERA, household tasks: 3 for success, +1 for each new best of progress, -0.5 if invalid.

    shaped: weight of the last two; `phase(1, 0, at=22)` leaves success alone after 22 iterations, as in the paper. For
    manipulation give the events themselves as `progress`: it pays on each new best. Checked against the released code.
    """
    steps = sign(cum_max_gain(progress)) - float(penalty) * (1.0 - fill_missing(valid, 1.0))
    return on_last(worth * as_signal(success)) + as_signal(shaped) * steps


@register()
def escalate(first: SignalLike, *later: SignalLike, base: float = 2.0) -> Signal:
    """Signal: Σ base**k · score_k over the given scores, k from 1, so later steps dominate ([199], 1612.06699).

    The scores are those of steps 2 to n: what belongs to the first step earns nothing.

    >>> from palaestra.algebra.turns import Turns
    >>> escalate("a", "b", "c").evaluate(Turns({"a": [1, 0, 1], "b": [0, 0, 1], "c": [0, 1, 1]}))
    array([ 2.,  8., 14.])
    """
    result = base * as_signal(first)
    for k, score in enumerate(later, start=2):
        result = result + base**k * as_signal(score)
    return result
