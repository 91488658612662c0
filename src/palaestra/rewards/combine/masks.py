"""Who counts in the baseline, and who is trained on: two masks, which are not the same.

An episode that was cut off can say how hard the task is without being a lesson; one whose judge failed is neither.
`where=` of a statistic is the first mask, a missing advantage the second. Rewards and credit of the methods that need
both. Left out: clipping, lengths and KL terms of their losses.
"""

from __future__ import annotations

from palaestra.algebra.keys import on_last
from palaestra.algebra.signals import (
    Keys,
    Signal,
    SignalLike,
    Unit,
    as_signal,
    centre,
    count,
    fill_missing,
    highest,
    lowest,
    ratio,
    register,
    standardise,
    where,
)
from palaestra.rewards.match.words import entity_recall


@register()
def masked(
    score: SignalLike,
    *,
    over: Keys = "group",
    in_baseline: SignalLike = True,
    in_loss: SignalLike = True,
    least: int = 1,
    scale: bool = True,
    unit: Unit = "episode",
    ddof: int = 1,
    eps: float = 1e-6,
    otherwise: SignalLike | None = None,
) -> Signal:
    """Signal: (score - mean) / (std + eps) over the key, statistics of `in_baseline` rows; missing if not `in_loss`.

    Keys with fewer than `least` of them give 0. Rows that are not `in_loss` get `otherwise`; left out, they are missing
    and so not trained on. scale=False: no division.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"group": [0] * 3, "episode": [0, 1, 2], "reward": [1.0, 0.0, 0.0], "truncated": [0, 0, 1]})
    >>> masked("reward", in_loss=~as_signal("truncated"), eps=0).evaluate(turns).round(4)
    array([ 1.1547, -0.5774,     nan])
    """
    x = as_signal(score)
    if scale:
        credit = standardise(x, over=over, unit=unit, where=in_baseline, ddof=ddof, eps=eps)
    else:
        credit = centre(x, over=over, unit=unit, where=in_baseline)
    if least > 1:
        credit = where(count(x, over=over, unit=unit, where=in_baseline) >= float(least), credit, 0.0 * x)
    return where(in_loss, credit, otherwise)


# -- named methods ----------------------------------------------------------------------------------------------------


@register()
def e_grpo_reward(
    text: str,
    entities: str,
    *,
    correct: SignalLike = "success",
    error: SignalLike = False,
    alpha: float = 0.3,
    over: Keys = "group",
) -> Signal:
    """Signal: [203] E-GRPO's reward, 1 if correct, else α · share of gold `entities` in `text` / the group's best.

    arXiv 2510.24694.

    Paid once, on each agent's last turn; 0 on the others. 0 for an `error`: a wrong format, too long; its entities
    count in the group's best all the same. text: the column in which entities are sought; entities: list column. The
    formula is the paper's, α = 0.3 from secondary text.
    """
    return on_last(_of_episode(text, entities, correct, error, alpha, over))


def _of_episode(
    text: str, entities: str, correct: SignalLike, error: SignalLike, alpha: float, over: Keys = "group"
) -> Signal:
    found = fill_missing(entity_recall(text, entities), 0.0)
    partial = alpha * ratio(found, highest(found, over=over))
    return where(error, 0.0, where(correct, 1.0, partial))


@register()
def e_grpo(
    text: str,
    entities: str,
    *,
    correct: SignalLike = "success",
    error: SignalLike = False,
    too_long: SignalLike = "truncated",
    alpha: float = 0.3,
    ddof: int = 1,
    eps: float = 1e-6,
) -> Signal:
    """Signal: [203] E-GRPO's advantage, GRPO of `e_grpo_reward(text, entities)`; too long ones score 0, teach nothing.

    They count in the baseline.

    error: what is wrong otherwise, such as the format; it gets 0 and is trained on.
    """
    long = as_signal(too_long)
    score = _of_episode(text, entities, correct, long | as_signal(error), alpha)
    return masked(score, in_loss=~long, ddof=ddof, eps=eps)


@register()
def cm2(
    score: SignalLike,
    *,
    over: Keys = ("group", "turn"),
    judged: SignalLike = True,
    least: int = 5,
    scale: bool = False,
    ddof: int = 1,
    eps: float = 1e-6,
) -> Signal:
    """Signal: [156] CM2's advantage, checklist score minus its mean over the key's judged episodes; unjudged get 0.

    score: e.g. the column that `utility(criteria, weights)` gives. judged: a mask of the turns at which no judge and no
    tool failed; an episode with one that failed is in no baseline and gets 0 at all its turns, as do keys with fewer
    than `least` judged episodes. Turn level by default; over="group" is the trajectory level. Checked against the
    released code.
    """
    ok = lowest(judged, over="episode") != 0.0
    return masked(
        score, over=over, in_baseline=ok, in_loss=ok, least=least, scale=scale, ddof=ddof, eps=eps, otherwise=0.0
    )
