"""Rewards of whole conversations: what they achieved, what they cost, and whether a person could read them."""

from __future__ import annotations

from palaestra.algebra.signals import Keys, Signal, SignalLike, as_signal, highest, register, where
from palaestra.credit.attempt_trees import along

_TREE = ("group", "episode")


@register()
def optima_reward(
    score: SignalLike = "reward",
    tokens: SignalLike = "words",
    loss: SignalLike = "text_loss",
    *,
    cost: float = 0.6,
    readable: float = 1.0,
    leaf: SignalLike = "leaf",
    over: Keys = "group",
) -> Signal:
    """Signal: [81] Optima, score - λ1 · tokens / most tokens + λ2 / highest loss, at a conversation's end; else 0.

    arXiv 2410.08115.

    The rows are nodes of a tree of conversations (`turn_tree`), and each leaf ends a conversation. The highest loss is
    that of the utterance on the way to the leaf which a base language model finds least likely (stage `text_loss`).

    Args:
        score: of the conversation.
        tokens: how many the conversation has.
        loss: of each row's utterance, above 0.
        cost: λ1 without its sign.
        readable: λ2.
        leaf: whether the conversation ends with the row.
        over: conversations among which the most tokens are looked for: those of one task.

    >>> from palaestra.algebra.turns import Turns
    >>> rows = {"group": [0] * 3, "episode": [0, 0, 1], "node": ["0.1", "0.1.1", "0.1"], "parent": ["0", "0.1", "0"]}
    >>> rows |= {"leaf": [False, True, True], "words": [20, 60, 120], "text_loss": [2.5, 1.0, 2.0]}
    >>> optima_reward().evaluate(Turns(rows | {"reward": [0.0, 0.8, 0.5]})).round(6)
    array([0. , 0.9, 0.4])
    """
    ends = as_signal(leaf) > 0
    share = as_signal(tokens) / highest(where(ends, tokens), over=over)
    worst = along(loss, over=_TREE, method="max")
    return where(ends, as_signal(score) - cost * share + readable / worst, 0.0)
