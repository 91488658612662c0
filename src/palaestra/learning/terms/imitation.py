"""Supervised terms: cloning what was said, weighted and signed, and preferences between pairs and by verdicts.

A pair is the rows with one value of the column `pair`: those where `chosen` is true against those where it is false; a
side may have several turns, whose log-probabilities are added. A row whose `pair` or `chosen` is missing takes no part,
nor does a token whose `label_mask` is 0, if there is that column.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import numpy as np
import polars as pl
import torch
import torch.nn.functional as F
from torch import Tensor

from palaestra.agents.policy import Scored
from palaestra.errors import InputError
from palaestra.learning.losses import Aggregation, log_odds, two_sided
from palaestra.learning.losses import aggregate as aggregated
from palaestra.learning.objective import TERMS, Term
from palaestra.learning.terms.term import MicroBatch, choice, how_to_aggregate, number


@TERMS.register()
def clone(
    weight: float = 1.0,
    column: str | None = None,
    *,
    aggregate: Aggregation = "token-mean",
    constant: float | None = None,
) -> Term:
    """Loss term: behaviour cloning, weight · mean of -w·log π, w from a column (below 0: away from it).

    The column holds numbers or truth values.

    Rows where the column is missing, or false, leave the mean, and of a column with lists tokens where it is missing; a
    w of 0 stays in it. Without a column w is 1.
    """
    number("clone", weight=weight)
    how_to_aggregate("clone", aggregate, constant)

    def loss(piece: MicroBatch) -> Tensor:
        if column is None:
            return weight * piece.mean(-piece.new, aggregate, constant)
        known, factor = piece.known(column), piece.column(column)
        if (values := piece.require(column)).dtype == pl.Boolean:
            known &= values[piece.step.chosen].fill_null(False).to_numpy()
            factor = factor.masked_fill(factor == 0, torch.nan)
        mask = piece.mask & ~factor.isnan()
        rows, tokens = int(known.sum()), int(piece.known_tokens(column)[known].sum())
        per_token = -factor.nan_to_num() * piece.new
        return weight * aggregated(per_token, mask, how=aggregate, constant=constant, rows=rows, tokens=tokens)

    return Term("clone", loss, needs=() if column is None else (column,))


# -- pairs ------------------------------------------------------------------------------------------------------------


class PairLogprobs(NamedTuple):
    """Data: log-probabilities of both sides of a step's pairs, [pairs] each, now and at the start; token counts."""

    chosen: Tensor
    rejected: Tensor
    chosen_start: Tensor
    rejected_start: Tensor
    chosen_tokens: Tensor
    rejected_tokens: Tensor


def pairs_of(piece: MicroBatch, *, reference: bool = True) -> PairLogprobs:
    """`PairLogprobs` of all pairs in a `MicroBatch` that is a whole step; InputError if a pair lacks a side.

    Raises:
        InputError: a pair lacks a side, or `chosen` holds no truth values.
    """
    pair, chosen = piece.require("pair")[piece.at], piece.require("chosen")[piece.at]
    if not (chosen.dtype.is_numeric() or chosen.dtype in (pl.Boolean, pl.Null)):
        raise InputError(f"term {piece.key}: column 'chosen' holds {chosen.dtype}, expected true and false")
    chosen = chosen.cast(pl.Boolean)
    known = np.flatnonzero((pair.is_not_null() & chosen.is_not_null()).to_numpy())
    names, code = np.unique(pair[known].cast(pl.String).to_numpy(), return_inverse=True)
    better = chosen[known].to_numpy()
    for side in (True, False):
        lacking = np.setdiff1d(np.arange(len(names)), code[better == side])
        if len(lacking):
            raise InputError(
                f"term {piece.key}: pair {names[lacking[0]]} has no row with chosen={str(side).lower()} "
                f"({len(lacking)} of {len(names)} pairs); both sides must have action_ids and no error"
            )
    at = torch.from_numpy(np.where(better, code, len(names) + code)).to(piece.new.device)
    rows = torch.from_numpy(known).to(piece.new.device)

    mask = piece.mask
    if "label_mask" in piece.step.table.columns:  # parts of an answer that are not compared, see the stage thinking()
        mask = mask & (piece.column("label_mask") != 0)

    def sums(values: Tensor) -> tuple[Tensor, Tensor]:
        per_row = values.masked_fill(~mask, 0.0).sum(1)[rows]
        both = per_row.new_zeros(2 * len(names)).index_add(0, at, per_row)
        return both[: len(names)], both[len(names) :]

    start = piece.reference().logprobs if reference else torch.zeros_like(piece.new.detach())
    return PairLogprobs(*sums(piece.new), *sums(start), *sums(mask.to(piece.new.dtype)))


def preference(name: str, weight: float, per_pair: Callable[[PairLogprobs], Tensor], *, reference: bool) -> Term:
    """Makes a `Term` from a function `PairLogprobs` -> loss per pair: weight · their mean; it logs `preferred`.

    `preferred` is how often the chosen is ahead.
    """
    number(name, low=0.0, weight=weight)

    def loss(piece: MicroBatch) -> Tensor:
        pairs = pairs_of(piece, reference=reference)
        if not len(pairs.chosen):
            return piece.new.sum() * 0.0
        ahead = pairs.chosen - pairs.chosen_start > pairs.rejected - pairs.rejected_start
        piece.log("preferred", ahead.double().mean())
        mean = per_pair(pairs).mean()
        piece.log(f"{name}_loss", mean)
        return weight * mean

    return Term(name, loss, needs=("pair", "chosen"), whole=True, together="pair", reference=reference)


DPOLoss = Literal[
    "sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard", "aot", "aot_unpaired",
    "apo_zero", "apo_down", "discopop", "sigmoid_norm",
]  # fmt: skip
Divergence = Literal["reverse_kl", "forward_kl", "js_divergence", "alpha_divergence"]


@TERMS.register()
def dpo(
    beta: float = 0.1,
    loss: DPOLoss = "sigmoid",
    *,
    smoothing: float = 0.0,
    divergence: Divergence = "reverse_kl",
    alpha: float = 0.5,
    tau: float = 0.05,
    weight: float = 1.0,
) -> Term:
    """Loss term: DPO (2305.18290) on columns `pair`, `chosen`: -log σ(β·(Δ_chosen - Δ_rejected)).

    Δ = log π - log π_start.

    loss: TRL's kinds: sigmoid, hinge (SLiC 2305.10425), ipo (2310.12036, per token), exo_pair (2402.00856), nca_pair
    (2402.05369), robust (2403.00409), bco_pair (2404.04656), sppo_hard (2405.00675), aot, aot_unpaired (2406.05882),
    apo_zero, apo_down (2408.06266), discopop (2406.08414; `tau`), sigmoid_norm (per token). smoothing: share of labels
    that are wrong. divergence: of f-DPO (2309.16240), `alpha` of its alpha divergence.
    """
    number("dpo", low=1e-9, beta=beta, tau=tau)
    number("dpo", low=0.0, high=0.499, smoothing=smoothing)
    number("dpo", low=0.0, alpha=alpha)
    choice("dpo", get_args(DPOLoss), loss=loss)
    choice("dpo", get_args(Divergence), divergence=divergence)
    if loss == "exo_pair" and not smoothing:
        raise InputError("dpo: loss='exo_pair' needs smoothing= above 0, e.g. 0.001")

    def per_pair(p: PairLogprobs) -> Tensor:
        up, down = p.chosen - p.chosen_start, p.rejected - p.rejected_start
        a, b = _score(up, divergence, alpha), _score(down, divergence, alpha)
        m = beta * (a - b)
        match loss:
            case "hinge":
                return torch.relu(1 - m)
            case "ipo":
                return (a / p.chosen_tokens.clamp(min=1) - b / p.rejected_tokens.clamp(min=1) - 1 / (2 * beta)).square()
            case "sigmoid_norm":
                return -F.logsigmoid(beta * (a / p.chosen_tokens.clamp(min=1) - b / p.rejected_tokens.clamp(min=1)))
            case "exo_pair":
                right = m.sigmoid() * (F.logsigmoid(m) - math.log1p(-smoothing))
                return right + (-m).sigmoid() * (F.logsigmoid(-m) - math.log(smoothing))
            case "nca_pair":
                held = F.logsigmoid(-beta * up) + F.logsigmoid(-beta * down)
                return -F.logsigmoid(beta * up) - held / 2
            case "robust":
                clean, flipped = F.logsigmoid(m), F.logsigmoid(-m)
                return (smoothing * flipped - (1 - smoothing) * clean) / (1 - 2 * smoothing)
            case "bco_pair":
                return -F.logsigmoid(beta * up) - F.logsigmoid(-beta * down)
            case "sppo_hard":
                return (up - 0.5 / beta).square() + (down + 0.5 / beta).square()
            case "aot":
                now, then = p.chosen - p.rejected, p.chosen_start - p.rejected_start
                return two_sided(beta * (now.sort().values - then.sort().values), smoothing)
            case "aot_unpaired":
                return two_sided(beta * (up.sort().values - down.sort().values), smoothing)
            case "apo_zero":
                return 1 - torch.sigmoid(beta * up) + torch.sigmoid(beta * down)
            case "apo_down":
                return torch.sigmoid(beta * up) + 1 - torch.sigmoid(beta * (up - down))
            case "discopop":
                mix = torch.sigmoid(m / tau)
                return -F.logsigmoid(m) * (1 - mix) + torch.exp(-m) * mix
            case _:
                return two_sided(m, smoothing)

    return preference("dpo", weight, per_pair, reference=True)


def _score(log_ratio: Tensor, divergence: str, alpha: float) -> Tensor:
    """f'(π / π_start) of f-DPO."""
    match divergence:
        case "forward_kl":
            return 1 - torch.exp(-log_ratio)
        case "js_divergence":
            return math.log(2) + F.logsigmoid(log_ratio)
        case "alpha_divergence" if abs(alpha - 1) >= 1e-6:
            return torch.expm1(((alpha - 1) * log_ratio).clamp(max=80.0)) / (alpha - 1)
        case _:
            return log_ratio


@TERMS.register()
def ipo(beta: float = 0.1, *, weight: float = 1.0) -> Term:
    """Loss term: IPO (2310.12036) on pairs, (Δ_chosen - Δ_rejected - 1 / 2β)², Δ = (log π - log π_start) per token.

    As in TRL.
    """
    return dpo(beta, "ipo", weight=weight)


@TERMS.register()
def cpo(
    beta: float = 0.1,
    loss: Literal["sigmoid", "hinge", "ipo", "simpo"] = "sigmoid",
    *,
    gamma: float = 0.5,
    smoothing: float = 0.0,
    alpha: float = 0.0,
    weight: float = 1.0,
) -> Term:
    """Loss term: CPO (2401.08417), DPO without a reference; add `clone(column="chosen")` for its supervised part.

    ipo and simpo compare log-probabilities per token, the others sums. gamma: margin of simpo. alpha: AlphaPO's
    (2501.03884) reward (1 - p^-α) / α instead of log p, on pairs of any kind.
    """
    number("cpo", low=1e-9, beta=beta)
    number("cpo", low=0.0, high=0.5, smoothing=smoothing)
    number("cpo", gamma=gamma, alpha=alpha)
    choice("cpo", ("sigmoid", "hinge", "ipo", "simpo"), loss=loss)

    def per_pair(p: PairLogprobs) -> Tensor:
        up, down = p.chosen, p.rejected
        if loss in ("ipo", "simpo"):
            up, down = up / p.chosen_tokens.clamp(min=1), down / p.rejected_tokens.clamp(min=1)
        if alpha:
            up, down = -torch.expm1(-alpha * up) / alpha, -torch.expm1(-alpha * down) / alpha
        margin = up - down - (gamma / beta if loss == "simpo" else 0.0)
        if loss == "hinge":
            return torch.relu(1 - beta * margin)
        return (margin - 1 / (2 * beta)).square() if loss == "ipo" else two_sided(beta * margin, smoothing)

    return preference("cpo", weight, per_pair, reference=False)


@TERMS.register()
def simpo(beta: float = 2.0, gamma: float = 0.5, *, weight: float = 1.0) -> Term:
    """Loss term: SimPO (2405.14734), -log σ(β·(log π per token of chosen - of rejected) - γ), no reference."""
    return cpo(beta, "simpo", gamma=gamma, weight=weight)


@TERMS.register()
def orpo(weight: float = 0.1) -> Term:
    """Loss term: ORPO's (2403.07691) odds ratio on pairs, -log σ(log odds of chosen - of rejected), no reference.

    Odds are those of the mean probability p per token.

    The whole method is `clone(column="chosen"), orpo(.1)`; TRL's clone also counts the tokens of the prompt.
    """

    def per_pair(p: PairLogprobs) -> Tensor:
        chosen, rejected = p.chosen / p.chosen_tokens.clamp(min=1), p.rejected / p.rejected_tokens.clamp(min=1)
        return -F.logsigmoid(log_odds(chosen) - log_odds(rejected))

    return preference("orpo", weight, per_pair, reference=False)


# -- verdicts ---------------------------------------------------------------------------------------------------------


@TERMS.register()
def kto(
    beta: float = 0.1,
    *,
    desirable: float = 1.0,
    undesirable: float = 1.0,
    zero: Literal["kl", "apo"] = "kl",
    weight: float = 1.0,
) -> Term:
    """Loss term: KTO (2402.01306) on a column `chosen` of turns, 1 - σ(β·(Δ - z)) if chosen, else 1 - σ(β·(z - Δ)).

    Δ = log π - log π_start of the turn, z = max(0, mean Δ of answers to other prompts): the k-th row of a group has the
    k-th answer of the group before it; without groups, or in a single one, it has that of the row before, as in TRL,
    whose rows are shuffled. zero: "apo" leaves z out (APO-zero, unpaired, 2408.06266).
    """
    number("kto", low=1e-9, beta=beta)
    number("kto", low=0.0, desirable=desirable, undesirable=undesirable, weight=weight)
    choice("kto", ("kl", "apo"), zero=zero)

    def loss(piece: MicroBatch) -> Tensor:
        good = piece.column("chosen")[:, 0]
        there = ~good.isnan() & piece.mask.any(1)
        moved = (piece.new - piece.reference().logprobs).masked_fill(~piece.mask, 0.0).sum(1)
        origin = _mismatched(piece) if zero == "kl" else 0.0
        value = torch.where(good > 0, torch.sigmoid(beta * (moved - origin)), torch.sigmoid(beta * (origin - moved)))
        per_row = torch.where(good > 0, desirable, undesirable) * (1 - value)
        mean = per_row.masked_fill(~there, 0.0).sum() / max(int(there.sum()), 1)
        piece.log("kto_loss", mean)
        piece.log("kto_origin", origin)
        return weight * mean

    return Term("kto", loss, needs=("chosen",), whole=True, reference=True)


@torch.no_grad()
def _mismatched(piece: MicroBatch) -> Tensor:
    """Mean of log π - log π_start of every row's prompt with an answer to another one, at least 0."""
    if piece.step.policy is None or piece.step.reference is None:
        raise InputError(f"term {piece.key}: z needs the policy and its reference; use it in a learner, or zero='apo'")
    other = piece.frame.with_columns(action_ids=piece.frame["action_ids"][_of_other_groups(piece.frame)])

    def total(scored: Scored) -> Tensor:
        return scored.logprobs.masked_fill(~scored.mask, 0.0).sum(1)

    return (total(piece.step.policy.score(other)) - total(piece.step.reference().score(other))).mean().clamp(min=0)


def _of_other_groups(frame: pl.DataFrame) -> np.ndarray:
    """For each row the number of a row of the group before its own, at the same place in it; else the row before."""
    rows = np.arange(len(frame))
    groups = np.unique(frame["group"], return_inverse=True)[1] if "group" in frame.columns else np.zeros_like(rows)
    if not groups.any():
        return np.roll(rows, 1)
    order, size = np.argsort(groups, kind="stable"), np.bincount(groups)
    first, before = np.cumsum(size) - size, (groups - 1) % len(size)
    place = np.empty_like(rows)
    place[order] = rows - first[groups[order]]
    found: np.ndarray = order[first[before] + place % size[before]]
    return found
