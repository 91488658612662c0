"""Rewards for training a judge: accuracy, consistency, format; and the verdict at the end of a text."""

from __future__ import annotations

import polars as pl

from palaestra.algebra.signals import Signal, SignalLike, as_signal, register
from palaestra.rewards.match.words import text_of


@register()
def r1_reward(
    result: SignalLike = "result",
    consistent: SignalLike = "consistent",
    formatted: SignalLike = "formatted",
    *,
    weight: float = 0.5,
    form: float = 0.5,
) -> Signal:
    """Signal: [31] R1-Reward, result·(1 + weight·consistent) + form·formatted, of three 0-or-1 columns.

    arXiv 2505.02835.

    Consistency of the rationale with the verdict multiplies, so it cannot pay for a wrong one. consistent in {0, 1} as
    the text reads; the code's judge says -1, 0 or 1. A result that could not be checked is missing and so is the
    reward; the code pays 1 for it.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"result": [1, 1, 0, None], "consistent": [1, 0, 1, 1], "formatted": [1, 1, 1, 1]})
    >>> r1_reward().evaluate(turns)
    array([2. , 1.5, 0.5, nan])
    """
    return as_signal(result) * (1.0 + weight * as_signal(consistent)) + form * as_signal(formatted)


@register()
def verdict_reward(
    text: str = "action",
    label: str = "label",
    *,
    last: int = 80,
    a: str = "<answer>[[A]]</answer>",
    b: str = "<answer>[[B]]</answer>",
) -> Signal:
    """Signal: [213] RM-R1, 1 if the text's end has only the verdict tag of the true `label` (A or B), else -1.

    arXiv 2505.02387.

    label: "A" or "B", the right one. No tag, both, or one that is followed by more than `last` characters earn -1, as
    does an empty text, or anything where the label is another one; without a label the reward is missing.

    >>> from palaestra.algebra.turns import Turns
    >>> texts = ["… <answer>[[A]]</answer>", "<answer>[[A]]</answer> <answer>[[B]]</answer>", "A"]
    >>> verdict_reward().evaluate(Turns({"action": texts, "label": ["A", "A", "A"]}))
    array([ 1., -1., -1.])
    """
    end = text_of(text).fill_null("").str.tail(last)
    said_a, said_b = (end.str.contains(tag, literal=True) for tag in (a, b))
    better = pl.col(label).cast(pl.String)
    right = ((better == "A") & said_a & ~said_b) | ((better == "B") & said_b & ~said_a)
    return as_signal(pl.when(better.is_not_null()).then(pl.when(right).then(1.0).otherwise(-1.0)))
