"""Losses that a stale or broken token cannot blow up."""

from __future__ import annotations

import math

from torch import Tensor

from palaestra.learning.losses import Aggregation, clipped_surrogate
from palaestra.learning.objective import TERMS, Term
from palaestra.learning.terms.surrogates import Clip, policy_loss
from palaestra.learning.terms.term import MicroBatch, ends, number


@TERMS.register()
def stable(
    clip: Clip = 0.2,
    *,
    low: float = 1e-3,
    high: float = 1e3,
    aggregate: Aggregation = "sequence-mean",
    constant: float | None = None,
) -> Term:
    """Loss term: StableReinforce's PPO (2505.02835), with the log-ratio clamped to [ln low, ln high] before clipping.

    Where A < 0 PPO leaves large ratios open: at a log-ratio of 8 the loss is 2981, here at most `high`, and outside of
    [low, high] the gradient is 0. sequence-mean as the released code. Its filter of advantages is `outlier_filter`.
    """
    bottom, top = ends("stable", clip)
    number("stable", low=1e-30, high=math.inf, **{"low of the ratio": low})
    number("stable", low=low, **{"high of the ratio": high})

    def per_token(piece: MicroBatch) -> Tensor:
        raw = piece.log_ratio()
        cut = raw.clamp(math.log(low), math.log(high))
        piece.log("pre_clipped", ((raw != cut) & piece.mask).sum(), per="token")
        loss, clipped = clipped_surrogate(cut, piece.advantage, low=bottom, high=top)
        piece.log("clip_fraction", (clipped & piece.mask).sum(), per="token")
        return loss

    return policy_loss("stable", per_token, aggregate, constant)
