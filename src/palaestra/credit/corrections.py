"""Credit of two attempts by one policy: the second is paid for what it improves, the first is not."""

from __future__ import annotations

from palaestra.algebra.signals import (
    Keys,
    Signal,
    SignalLike,
    as_signal,
    centre,
    fill_missing,
    is_missing,
    register,
    where,
)
from palaestra.credit.attempts import improvement


@register()
def self_correction(
    reward: SignalLike = "right", *, alpha: float = 10.0, first: bool = True, over: Keys = ("iteration", "look")
) -> Signal:
    """Signal: [141] SCoRe (2409.12917), credit r_1 of attempt 1, r_2 + α·(r_2 - r_1) of attempt 2, each less the mean.

    The improvement is on the row of the second attempt alone, and no attempt is paid what comes after it: if it were
    part of the first one's return, (1 - α)·r_1 + (1 + α)·r_2, failing on purpose first would pay. Phase I is
    first=False, alpha=0: first attempts have credit 0, so that only the second learns, and stay in the batch, so that
    `pinned()` reads and holds them. α = 10 is from memory of the paper's appendix.

    Args:
        reward: of each attempt, on its row.
        alpha: weight of the improvement.
        first: first attempts learn, too.
        over: whose mean is the baseline: attempts of one kind.

    >>> from palaestra.algebra.turns import Turns
    >>> rows = {"iteration": [1] * 4, "episode": [0, 0, 1, 1], "turn": [0, 1, 0, 1], "look": [0, 1, 0, 1]}
    >>> self_correction().evaluate(Turns(rows | {"right": [0.0, 1.0, 1.0, 0.0]}))
    array([ -0.5,  10.5,   0.5, -10.5])
    """
    rise = improvement(reward, of="result")
    paid = as_signal(reward) + alpha * fill_missing(rise, 0.0)
    return centre(paid if first else where(is_missing(rise), 0.0, paid), over=over, unit="row")
