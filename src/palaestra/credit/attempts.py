"""Improvement: what an attempt, a hint or a reflection changed, credited to the row that caused it and to no other.

Paid as a reward and summed over an episode, an improvement rewards whoever makes the first attempt worse: with
α > 1 in (1 - α)·r₁ + (1 + α)·r₂ it is best to fail on purpose first. So it is a value per row here, to be standardised
with unit="row", not a part of anybody's return. Beside it: the signed and the exponential weights by which attempts are
cloned.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from palaestra.algebra.kernels import Evaluation, kernel
from palaestra.algebra.keys import joined, turn_values
from palaestra.algebra.returns import episode_score
from palaestra.algebra.signals import (
    Keys,
    Signal,
    SignalLike,
    as_signal,
    centre,
    clip,
    col,
    count,
    exp,
    fill_missing,
    is_in,
    is_missing,
    mean,
    register,
    standardise,
    where,
)
from palaestra.errors import ExpressionError


@register()
def improvement(
    x: SignalLike,
    order: SignalLike | None = None,
    *,
    over: Keys = "episode",
    of: Literal["cause", "result", "next"] = "cause",
    at: SignalLike | None = None,
    gate: SignalLike | None = None,
) -> Signal:
    """Signal: next score of x in the key minus the latest at the row; of="result": the row's own minus the one before.

    Retroformer's reward of a reflection (arXiv 2308.02151), WaltzRL's of feedback (arXiv 2510.08240), SCoRe's bonus of
    a second attempt (arXiv 2409.12917, of="result").

    Args:
        x: the score of an attempt; missing on rows that are none, such as the feedback between two.
        order: the column by which attempts follow each other; default: the order of play.
        over: whose attempts.
        of: the row that is credited. "cause": each row, by the next score after it minus the last one up to it; the
            last attempt causes nothing, missing. "result": the attempt, by its own score minus the one before; the
            first has none. "next": each row, by the next score after it, of which nothing is taken off.
        at: rows that are credited, others are missing.
        gate: multiplies it: 0 where the row may earn nothing by it.

    Raises:
        ExpressionError: `of` is unknown.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"episode": [0] * 4, "turn": [0, 1, 2, 3], "score": [0.2, 0.5, 0.5, 0.4]})
    >>> improvement("score").evaluate(turns).round(6)
    array([ 0.3,  0. , -0.1,  nan])
    """
    if of not in ("cause", "result", "next"):
        raise ExpressionError(f"improvement: of={of!r} is 'cause', 'result' or 'next'")
    children = [as_signal(each) for each in (x, order) if each is not None]
    rise = Signal("improvement", *children, over=joined(over), of=of)
    rise = rise if gate is None else rise * gate
    return rise if at is None else where(at, rise)


@kernel("improvement")
def _improvement(evaluation: Evaluation, node: Signal) -> np.ndarray:
    x, *given = turn_values(evaluation, node, node.inputs)
    ids = evaluation.codes(node.options["over"]).ids
    if not given:
        segments = evaluation.segments(node.options["over"])
        order = np.arange(len(x)) if segments.order is None else segments.order
    else:
        order = np.lexsort((given[0], ids))
    value, key, place = x[order], ids[order], np.arange(len(x))
    known = ~np.isnan(value)
    before = np.maximum.accumulate(np.where(known, place, -1))
    after = np.minimum.accumulate(np.where(known, place, len(x))[::-1])[::-1]
    of = node.options["of"]
    if of == "result":
        first, second = np.append(-1, before[:-1]), np.where(known, place, len(x))
    else:
        first, second = place if of == "next" else before, np.append(after[1:], len(x))
    fine = (first >= 0) & (second < len(x))
    fine[fine] = (key[first[fine]] == key[fine]) & (key[second[fine]] == key[fine])
    result = np.full(len(x), np.nan)
    result[order[fine]] = value[second[fine]] - (0.0 if of == "next" else value[first[fine]])
    return result


@register()
def signed(good: SignalLike, *, over: Keys = "task", balanced: bool = True) -> Signal:
    """Signal: weights of contrastive cloning: 1 on successes, below 0 on failures of keys with successes, else missing.

    A³T (arXiv 2403.14589): in a key with both, failures weigh -(successes / failures) each, so that the weights of its
    episodes add up to 0 (a reconstruction; balanced=False: -1 each). In a key without a success they are missing:
    failures alone are nobody's negatives. In one without a failure, 1. For `clone(column="weight")`.

    Args:
        good: 1 where the episode succeeded, 0 where it failed.
        over: key whose successes and failures are compared.
        balanced: whether a key's weights add up to 0; else every failure weighs -1.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"task": ["a"] * 3 + ["b"], "episode": [0, 1, 2, 3], "success": [True, False, False, False]})
    >>> signed("success").evaluate(turns)
    array([ 1. , -0.5, -0.5,  nan])
    """
    won = 1.0 * as_signal(good)
    wins = count(won, over=over, unit="episode", where=won > 0.0)
    losses = count(won, over=over, unit="episode", where=won <= 0.0)
    one = wins / where(losses > 0.0, losses, 1.0) if balanced else as_signal(1.0)
    return where(is_missing(won), won, where(won > 0.0, 1.0, where(wins > 0.0, -1.0 * one)))


@register()
def hard_success(score: SignalLike = "success", *, most: float = 0.9, over: Keys = "group") -> Signal:
    """Signal: 1 on episodes that succeeded at a task of which at most a share `most` of the attempts did, else 0.

    Two-sided rejection sampling of SWE-Reasoner (arXiv 2503.23803): what is learned from is right, and not solved
    trivially. For `keep("hard_success()", between=(1, 1))`. The share is a reconstruction.

    Args:
        score: 1 where the episode succeeded, 0 where it failed.
        most: Largest share of successes of a task that is worth learning from.
        over: Key of the attempts at one task.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"group": [0, 0, 1, 1], "episode": [0, 1, 2, 3], "success": [True, True, True, False]})
    >>> hard_success().evaluate(turns)
    array([0., 0., 1., 0.])
    """
    won = mean(1.0 * as_signal(score), over="episode")
    return where((won > 0.0) & (mean(won, over=over, unit="episode") <= float(most)), 1.0, 0.0)


@register()
def exp_weight(advantage: SignalLike, *, temperature: float = 1.0, most: float = 20.0) -> Signal:
    """Signal: weights of advantage-weighted cloning, min(exp(advantage / temperature), most) (AWR, arXiv 1910.00177).

    Raises:
        ExpressionError: the temperature or `most` is not above 0.

    >>> from palaestra.algebra.turns import Turns
    >>> exp_weight("reward", most=3.0).evaluate(Turns({"reward": [0.0, 1.0, 2.0]})).round(4)
    array([1.    , 2.7183, 3.    ])
    """
    if not temperature > 0 or not most > 0:
        raise ExpressionError(f"exp_weight: temperature={temperature} and most={most} must be above 0")
    return exp(clip(as_signal(advantage) / temperature, high=float(np.log(most))))


# -- rewards made of it -----------------------------------------------------------------------------------------------


@register()
def waltz_reward(
    right: SignalLike = "right",
    label: SignalLike = "label",
    formatted: SignalLike = "formatted",
    *,
    speaker: str = "speaker",
    feedback: str = "feedback",
    alpha: float = 1.0,
    weight: SignalLike = 0.5,
    gamma: float = 0.1,
) -> Signal:
    """Signal: reward of WaltzRL [167] (2510.08240): speaker `right`, feedback α · rise · label + λ · label + γ · form.

    The improvement is that of the answer after it over the one before it, and counts only where both of its labels are
    right: a false alarm earns nothing and loses nothing by what came of it. Without an answer after it there is none.
    The speaker is paid 1 for each answer of its that is neither unsafe nor over-refusing. From a note on the full text.

    Args:
        right: 1 or 0 on the speaker's turns.
        label: 1 or 0 on feedback's turns: it judged the answer rightly.
        formatted: 1 or 0 on feedback's turns: it kept the format.
        speaker: agent that answers.
        feedback: agent that gives feedback.
        alpha: α, weight of the improvement; the paper's value is not known.
        weight: λ; 0 from the second phase on.
        gamma: γ, weight of the format; the paper's value is not known.
    """
    rise = fill_missing(improvement(right, gate=label), 0.0)
    paid = alpha * rise + as_signal(weight) * as_signal(label) + gamma * as_signal(formatted)
    return where(is_in("agent", speaker), right, where(is_in("agent", feedback), paid))


@register()
def waltzrl(reward: SignalLike = "reward", *, speaker: str = "speaker", until: int = 0) -> Signal:
    """Signal: credit of WaltzRL [167], reward standardised per agent; missing for the speaker before iteration `until`.

    reward: `waltz_reward(weight=phase(.5, 0, at=until))`, a value of each turn. Each turn is a sample of its own, so
    that what feedback is paid is nobody else's return.
    """
    own = standardise(reward, over="agent")
    return where(is_in("agent", speaker) & (col("iteration") < float(until)), where(as_signal(0.0), 0.0), own)


@register()
def retroformer(
    score: SignalLike = "score", *, reflector: str = "reflector", over: Keys = "episode", difference: bool = True
) -> Signal:
    """Signal: [37] Retroformer (arXiv 2308.02151), a reflection earns how much better the next trial is, less the mean.

    G_{i+1} - G_i on the reflector's turn between the trials, missing on everybody else's: the actor is not trained. The
    baseline is the mean over the batch. difference=False: the next trial's return itself.

    Args:
        score: of a trial, on the actor's last row of it; missing on other rows.
        reflector: agent that is credited.
        over: key whose rows are the trials of one task.
        difference: pay the rise over the trial before; else the next trial's return.
    """
    at = is_in("agent", reflector)
    paid = improvement(score, over=over, at=at) if difference else improvement(score, over=over, of="next", at=at)
    return centre(paid, over=())


@register()
def agent_rlvr(score: SignalLike | None = None, *, over: Keys = "group") -> Signal:
    """Signal: [178] Agent-RLVR (arXiv 2506.11425), GRPO over first and guided attempts together, each by its verdict.

    A group that failed has no spread; its guided attempts give it one. Use after the stage `guidance()`.

    Args:
        score: what the verifier says of an episode; default: its return.
        over: whose attempts are compared.
    """
    return standardise(episode_score(score), over=over, unit="episode")
