"""A clip that is wider where the player was helped: what help found may be taken over in larger steps [82]."""

from __future__ import annotations

import torch
from torch import Tensor

from palaestra.learning.losses import Aggregation, clipped_surrogate
from palaestra.learning.objective import TERMS, Term
from palaestra.learning.terms.surrogates import Clip, policy_loss
from palaestra.learning.terms.term import MicroBatch, ends, number


@TERMS.register()
def boosted(
    clip: Clip = (0.2, 0.28),
    *,
    helped: float = 0.6,
    column: str = "helped",
    aggregate: Aggregation = "token-mean",
    constant: float | None = None,
) -> Term:
    """Loss term: AgentEvolver's surrogate (2511.10395), PPO's with the upper end 1 + `helped` where `column` is true.

    What was played with help (stage `experience`) and is learned without it may so become likelier for longer, if it
    was good. The lower end is that of `clip`, and so is the upper one where the column is false or missing.
    """
    low, high = ends("boosted", clip)
    number("boosted", low=0.0, helped=helped)

    def per_token(piece: MicroBatch) -> Tensor:
        raw, wide = piece.log_ratio(), piece.column(column) == 1
        narrow, cut = clipped_surrogate(raw, piece.advantage, low=low, high=high)
        wider, cut_wide = clipped_surrogate(raw, piece.advantage, low=low, high=helped)
        piece.log("clip_fraction", (torch.where(wide, cut_wide, cut) & piece.mask).sum(), per="token")
        return torch.where(wide, wider, narrow)

    return policy_loss("boosted", per_token, aggregate, constant, needs=(column,))
