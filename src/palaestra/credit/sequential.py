"""Sequential updates: turns, or agents, one after the other, the last first, given what the later ones have become.

`seeupo` is the advantage; `sequential_update` is the order of updates around any learner. Left out: the clipped ratio
per turn, which is `ratio="sequence"` of the learner (a row is a turn).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import polars as pl

from palaestra.algebra.signals import Keys, Signal, SignalLike, as_signal, cumulative, exp, register, standardise
from palaestra.algebra.turns import Turns
from palaestra.credit.grouped import dr_grpo
from palaestra.errors import InputError, nearest

Order = Literal["reverse", "forward", "random"]


@register()
def reverse_product(log_ratio: SignalLike = "log_ratio", *, over: Keys = "episode") -> Signal:
    """Signal: product of the policy ratios of all later turns, exp(Σ_{t'>t} log ratio); 1 on the last turn.

    Who acts at once is not later.

    >>> from palaestra.algebra.turns import Turns
    >>> turns = Turns({"episode": [0] * 3, "log_ratio": [0.0953102, -0.1053605, 0.2623643]})
    >>> reverse_product().evaluate(turns).round(4)
    array([1.17, 1.3 , 1.  ])
    """
    return exp(cumulative(log_ratio, reverse=True, exclusive=True, over=over))


@register()
def seeupo(score: SignalLike | None = None, *, log_ratio: SignalLike = 0.0) -> Signal:
    """Signal: [96] SeeUPO (2602.06554), (R - group mean, standardised over the batch) · product of later turns' ratios.

    log_ratio: log π_new - log π_old of the whole turn, 0 for turns that are not updated yet; `sequential_update` fills
    the column. At first all are 0 and this is the group-relative advantage without the group's deviation, which is what
    spoils monotonic improvement. From secondary text.
    """
    return standardise(dr_grpo(score), over=()) * reverse_product(as_signal(log_ratio))


def sequential_update(
    turns: Turns,
    update: Callable[[Turns], np.ndarray],
    *,
    score: SignalLike | None = None,
    advantage: SignalLike | None = None,
    key: str = "turn",
    order: Order = "reverse",
    rng: np.random.Generator | None = None,
) -> list[np.ndarray]:
    """Calls `update(Turns)` per value of `key`, last turn first, advantages renewed; list of each call's row numbers.

    Before each part the advantage (`seeupo`, or another one times the same product) is computed with the ratios of the
    parts that were updated before. By reverse order each turn is improved against what its successors have become;
    "forward" and "random" are for comparison. With key="agent" agents are taken in the order of their names, and the
    product runs over agents that were updated before.

    Args:
        turns: the table; nothing is added to it.
        update: takes a table of the part's rows with the column `advantage`, changes the policy (a `PolicyGradient`'s
            update with ratio="sequence", say) and returns each row's summed log-ratio new to old, float64.
        score: what `dr_grpo` standardises where no advantage is given; default: the return.
        advantage: advantage before it is multiplied by the ratios.
        key: column whose values are updated one after the other.
        order: "reverse", "forward" or "random".
        rng: draws of "random".

    Returns:
        the rows of each part, in the order in which they were updated.

    Raises:
        InputError: the order is unknown, rng is needed, or `update` does not return a number per row.
    """
    if order not in ("reverse", "forward", "random"):
        raise InputError(f"sequential_update: order={order!r}{nearest(str(order), ['reverse', 'forward', 'random'])}")
    if order == "random" and rng is None:
        raise InputError("sequential_update: order='random' needs rng=np.random.default_rng(seed)")
    column = turns[key]
    names = column.cast(pl.String) if column.dtype == pl.Categorical else column
    parts = [np.flatnonzero((names == value).to_numpy()) for value in names.unique().sort()]
    if order != "forward":
        parts.reverse()
    if rng is not None and order == "random":
        parts = [parts[place] for place in rng.permutation(len(parts))]
    base = np.asarray(
        (standardise(dr_grpo(score), over=()) if advantage is None else as_signal(advantage)).evaluate(turns)
    )
    episode = turns.codes("episode")
    done = np.zeros(episode.size)  # summed log-ratios of what was updated before, by episode
    for rows in parts:
        corrected = base[rows] * np.exp(done[episode.ids[rows]])
        part = Turns(turns.frame[rows]).with_column(advantage=corrected)
        ratios = np.asarray(update(part), float)
        if ratios.shape != rows.shape or not np.isfinite(ratios).all():
            raise InputError(f"sequential_update: update() must return a finite log-ratio for each of {len(rows)} rows")
        done += np.bincount(episode.ids[rows], ratios, episode.size)
    return parts
