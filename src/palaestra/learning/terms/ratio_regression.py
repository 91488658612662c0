"""Regression of the log-ratio to the reference on the advantage: learning from whoever played, held near the start."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from palaestra.learning.objective import TERMS, Term
from palaestra.learning.terms.term import MicroBatch, number


@TERMS.register()
def ratio_regression(
    beta: float = 1.0, sure: float = 5.0, *, above: float = 0.8, negative: float = 0.0, weight: float = 1.0
) -> Term:
    """Loss term: WebRL's actor loss (2411.02337), SmoothL1(β·ρ, A)/β, ρ = mean over tokens of log π - log π_ref.

    A is 1 where the advantage is not below 0, else -negative; rows with advantage 0 take no part. β is `sure` where
    A > 0 and the reference's mean probability is at least `above`, else `beta`, and at most |A/ρ|, so that a row that
    went far enough has no loss. negative: 0 leaves rows with a negative advantage out, as the released trainer does.
    """
    number("ratio_regression", low=1e-9, beta=beta, sure=sure)
    number("ratio_regression", low=0.0, above=above, negative=negative, weight=weight)

    def loss(piece: MicroBatch) -> Tensor:
        tokens = piece.mask.sum(1).clamp(min=1)
        then = piece.reference().logprobs.masked_fill(~piece.mask, 0.0)
        rho = (piece.new - then).sum(1) / tokens
        chance = (then.exp().masked_fill(~piece.mask, 0.0).sum(1) / tokens).detach()
        credit = piece.advantage.sum(1) / tokens
        goal = torch.where(credit >= 0, torch.ones_like(credit), torch.full_like(credit, -negative))
        step = torch.where((goal > 0) & (chance >= above), sure, beta)
        step = torch.minimum(step, (goal / rho.detach().where(rho.detach() != 0, torch.tensor(1e-9))).abs())
        step = step.clamp(min=1e-9)
        per_row = F.smooth_l1_loss(step * rho, goal, reduction="none") / step
        used = (credit != 0) & (goal != 0)
        piece.log("rho", (rho.detach() * used).sum() / max(piece.rows, 1))
        return weight * piece.row_mean(per_row.masked_fill(~used, 0.0))

    return Term("ratio_regression", loss, credit=True, everywhere=False, reference=True)
