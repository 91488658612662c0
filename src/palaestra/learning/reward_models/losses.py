"""Losses of reward models, in torch: from scores of both sides of pairs, of groups, or from labels, to one number.

Pure functions on scores `[rows]`; whoever makes the scores is not their business. `weight` and `mask` are per row: a
row of weight 0 leaves the loss and its denominator, and without any row the loss is 0, with a gradient of 0. The
implicit rewards' losses (DPO and its kin) are terms of an objective: `palaestra.learning.terms`.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from palaestra.errors import InputError, nearest

Centring = Literal["square", "mean"]
Ranking = Literal["ranknet", "listnet", "ce"]


def weighted(loss: Tensor, weight: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
    """Weighted mean Σ w·loss / Σ w over rows of the mask; 0 if there are none."""
    if weight is None and mask is None:
        return loss.sum() / max(loss.numel(), 1)
    w = torch.ones_like(loss) if weight is None else weight.to(loss).expand_as(loss)
    w = w if mask is None else w.masked_fill(~mask, 0.0)
    total = w.sum()
    return (loss.masked_fill(w == 0, 0.0) * w).sum() / torch.where(total > 0, total, torch.ones_like(total))


# -- pairs ------------------------------------------------------------------------------------------------------------


def bradley_terry_loss(
    chosen: Tensor,
    rejected: Tensor,
    *,
    margin: Tensor | float | None = None,
    weight: Tensor | None = None,
    mask: Tensor | None = None,
    centre: float = 0.0,
    centring: Centring = "square",
) -> Tensor:
    """Bradley-Terry loss, a scalar: mean over pairs of -log σ(`chosen` - `rejected` - margin) (Llama 2, 2307.09288).

    centre: weight of a penalty that keeps scores near 0: "square" mean (r_w + r_l)² (2312.09244, TRL's
    `center_rewards_coefficient`); "mean" |mean (r_w + r_l)| (ARMAP's code, 2502.12130). Weights count in both parts.

    >>> float(bradley_terry_loss(torch.tensor([2.0]), torch.tensor([2.0]), centre=0.5))  # ln 2 + .5 · 16
    8.693147...
    """
    lead = chosen - rejected
    loss = weighted(-F.logsigmoid(lead if margin is None else lead - margin), weight, mask)
    if centre:
        both = chosen + rejected
        if centring == "square":
            return loss + centre * weighted(both.square(), weight, mask)
        if centring != "mean":
            raise InputError(f"bradley_terry_loss: centring={centring!r}{nearest(str(centring), get_args(Centring))}")
        return loss + centre * weighted(both, weight, mask).abs()
    return loss


def mixture_bt_loss(
    delta: Tensor,
    log_gate: Tensor,
    *,
    entropy: float = 0.0,
    weight: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Mixture Bradley-Terry loss: mean over pairs of -log Σ_k π_k·σ(Δ_k), from `delta` and `log_gate`, [pairs, heads].

    Source: MiCRo, 2505.24846.

    delta, log_gate: [pairs, heads], lead of the chosen side by each head, and log π. entropy: λ of + λ·Σ_k π_k·log π_k
    per pair, which keeps the gate soft (.5 in the code).
    """
    loss = -torch.logsumexp(log_gate + F.logsigmoid(delta), -1)
    if entropy:
        loss = loss + entropy * (log_gate.exp() * log_gate.clamp(min=torch.finfo(delta.dtype).min)).sum(-1)
    return weighted(loss, weight, mask)


def both_orders_loss(
    yes_wl: Tensor, no_lw: Tensor, *, weight: Tensor | None = None, mask: Tensor | None = None
) -> Tensor:
    """Loss of a pairwise judge in both orders (OneReward): -½ · mean of `yes_wl` + `no_lw`, log-probabilities.

    Source: arXiv 2508.21066.

    yes_wl, no_lw: log P(yes | w, l) and log P(no | l, w), [pairs].
    """
    return weighted(-(yes_wl + no_lw) / 2, weight, mask)


# -- labels -----------------------------------------------------------------------------------------------------------


def binary_loss(logit: Tensor, label: Tensor, *, weight: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
    """Binary cross-entropy of σ(logit) with a label in [0, 1], mean over rows; rows of NaN labels are left out."""
    known = ~label.isnan()
    loss = F.binary_cross_entropy_with_logits(logit, label.to(logit).nan_to_num(), reduction="none")
    return weighted(loss, weight, known if mask is None else known & mask)


def regress(predicted: Tensor, target: Tensor, *, weight: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
    """Mean squared error loss, of [rows] or [rows, heads]; NaN targets are left out (multi-head, DPA 2402.18571).

    weight, mask: [rows].
    """
    known = ~target.isnan()
    if predicted.ndim == 2:
        weight = None if weight is None else weight[:, None]
        mask = None if mask is None else mask[:, None]
    loss = (predicted - target.to(predicted).nan_to_num()).square()
    return weighted(loss, weight, known if mask is None else known & mask)


# -- groups -----------------------------------------------------------------------------------------------------------


def rank_loss(
    scores: Tensor, teacher: Tensor | None = None, kind: Ranking = "ranknet", *, mask: Tensor | None = None
) -> Tensor:
    """Ranking loss of scores [groups, items] towards the `teacher`'s (ranknet, listnet or ce), a mean over groups.

    ranknet: mean over pairs i < j of the cross-entropy of σ(s_i - s_j) with σ(t_i - t_j) (Burges 2005, soft labels).
    listnet: cross-entropy of softmax(s) with softmax(t) (Cao 2007).
    ce: -log softmax(s) at the best item: the first one (DeAR, 2508.16998), or with a teacher its argmax.
    mask: False where a group has no such item; a group with fewer than two leaves the mean.

    Raises:
        InputError: there is no such kind, or no teacher where one is needed.
    """
    real = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
    if teacher is None and kind != "ce":
        raise InputError(f"rank_loss: kind={kind!r} needs the teacher's scores")
    low = torch.finfo(scores.dtype).min
    kept = scores.masked_fill(~real, low)
    match kind:
        case "ranknet":
            i, j = torch.triu_indices(scores.shape[1], scores.shape[1], 1, device=scores.device)
            both = real[:, i] & real[:, j]
            lead, goal = kept[:, i] - kept[:, j], torch.sigmoid(teacher[:, i] - teacher[:, j])  # type: ignore[index]
            lead, goal = lead.masked_fill(~both, 0.0), goal.masked_fill(~both, 0.0)
            each = F.binary_cross_entropy_with_logits(lead, goal.to(lead), reduction="none").masked_fill(~both, 0.0)
            loss = each.sum(1) / both.sum(1).clamp(min=1)
        case "listnet":
            goal = teacher.to(scores).masked_fill(~real, low).softmax(-1)  # type: ignore[union-attr]
            loss = -(goal * kept.log_softmax(-1).masked_fill(~real, 0.0)).sum(-1)
        case "ce":
            best = torch.zeros_like(kept[:, :1], dtype=torch.long)
            if teacher is not None:
                best = teacher.masked_fill(~real, low).argmax(-1, keepdim=True)
            loss = -kept.log_softmax(-1).gather(1, best)[:, 0]
        case _:
            raise InputError(f"rank_loss: kind={kind!r} is unknown{nearest(str(kind), get_args(Ranking))}")
    return weighted(loss, mask=real.sum(1) > 1)


def distill(student: Tensor, teacher: Tensor, *, temperature: float = 2.0, mask: Tensor | None = None) -> Tensor:
    """Distillation loss of `student` from `teacher` scores [groups, items]: T² · KL(softmax(t/T) ‖ softmax(s/T)).

    Source: Hinton et al. 2015; DeAR has T = 2.
    """
    real = torch.ones_like(student, dtype=torch.bool) if mask is None else mask
    low = torch.finfo(student.dtype).min
    ours, theirs = ((x.to(student) / temperature).masked_fill(~real, low).log_softmax(-1) for x in (student, teacher))
    gap = (theirs.exp() * (theirs - ours)).masked_fill(~real, 0.0)
    return weighted(temperature**2 * gap.sum(-1), mask=real.sum(1) > 1)


def distill_rank_loss(
    student: Tensor,
    teacher: Tensor,
    *,
    temperature: float = 2.0,
    alpha: float = 0.1,
    rank: Ranking = "ranknet",
    positive: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """DeAR's first-stage loss (2508.16998), a scalar of `student`, `teacher` scores: (1 - α)·`rank_loss` + α·`distill`.

    positive: labels [groups, items] for "ce", whose best item it is; None: the first.
    """
    order = rank_loss(student, positive if rank == "ce" else teacher, rank, mask=mask)
    return (1 - alpha) * order + alpha * distill(student, teacher, temperature=temperature, mask=mask)
