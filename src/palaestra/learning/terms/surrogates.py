"""Policy losses: what an advantage and the ratio of new to old probabilities do to a policy.

r is π / π_old of a token, A its advantage, sg a stop-gradient. Each is the loss of its paper as verl 0.9.1 or TRL 1.16
computes it, value and gradient; log-ratios are cut to ±20 everywhere (verl cuts most, TRL none).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from palaestra.learning.losses import LEVELS, LIMIT, Aggregation, Level, bounded, clipped_surrogate
from palaestra.learning.objective import TERMS, Term
from palaestra.learning.terms.term import MicroBatch, choice, ends, how_to_aggregate, number

Clip = float | Sequence[float | None] | None


def policy_loss(
    name: str, per_token: Callable[[MicroBatch], Tensor], aggregate: Aggregation, constant: float | None, **flags: Any
) -> Term:
    """Makes a `Term` from `per_token` (`MicroBatch` -> loss per token), by `aggregate`; rows of advantage 0 omitted."""
    how_to_aggregate(name, aggregate, constant)

    def loss(piece: MicroBatch) -> Tensor:
        return piece.mean(per_token(piece), aggregate, constant)

    return Term(name, loss, credit=True, **{"everywhere": False} | flags)


def _cut(piece: MicroBatch, where: Tensor) -> None:
    piece.log("clip_fraction", (where & piece.mask).sum(), per="token")


@TERMS.register()
def surrogate(
    clip: Clip = 0.2,
    *,
    dual_clip: float | None = None,
    ratio: Level = "token",
    aggregate: Aggregation = "token-mean",
    constant: float | None = None,
) -> Term:
    """Loss term: PPO's clipped surrogate, -min(r·A, clip(r, 1 - low, 1 + high)·A) (1707.06347).

    clip: ε of both ends, (low, high) (DAPO 2503.14476), or None. dual_clip: c > 1 bounds the loss where A < 0.
    ratio: "token", or "sequence" = one per turn (GSPO). aggregate, constant: see `losses.aggregate`.
    """
    low, high = ends("surrogate", clip)
    choice("surrogate", LEVELS, ratio=ratio)
    if dual_clip is not None:
        number("surrogate", low=1.0, dual_clip=dual_clip)

    def per_token(piece: MicroBatch) -> Tensor:
        loss, clipped = clipped_surrogate(piece.log_ratio(ratio), piece.advantage, low=low, high=high, dual=dual_clip)
        _cut(piece, clipped)
        return loss

    return policy_loss("surrogate", per_token, aggregate, constant)


@TERMS.register()
def gspo(clip: Clip = (3e-4, 4e-4), *, aggregate: Aggregation = "sequence-mean", constant: float | None = None) -> Term:
    """Loss term: GSPO (2507.18071), the surrogate with one ratio per turn, the paper's clip, and a mean over turns."""
    return surrogate(clip, ratio="sequence", aggregate=aggregate, constant=constant)


@TERMS.register()
def luspo(clip: Clip = 0.2) -> Term:
    """Loss term: LUSPO (2602.05261), GSPO's loss times the length of the answer: a sum over its tokens, not a mean."""
    return surrogate(clip, ratio="sequence", aggregate="sequence-sum")


@TERMS.register()
def gmpo(clip: Clip = 0.4) -> Term:
    """Loss term: GMPO (2507.20673), -A · geometric mean of a turn's ratios, log-ratios clipped to [-low, high].

    Clipped is where it would gain, as in PPO. One advantage per turn: the mean over its tokens.
    """
    low, high = ends("gmpo", clip)

    def loss(piece: MicroBatch) -> Tensor:
        sign, raw = piece.advantage.sign(), piece.log_ratio()
        cut = raw if low is None and high is None else raw.clamp(None if low is None else -low, high)
        _cut(piece, (raw != cut) & (sign != 0))
        kept = sign * torch.minimum(sign * raw, sign * cut)
        return piece.row_mean(-_per_row(piece, piece.advantage) * _per_row(piece, kept).exp())

    return Term("gmpo", loss, credit=True, everywhere=False)


@TERMS.register()
def rloo(clip: Clip = 0.2) -> Term:
    """Loss term: TRL's RLOO (2402.14740), one ratio per turn, the product over its tokens, clipped as in PPO."""
    low, high = ends("rloo", clip)

    def loss(piece: MicroBatch) -> Tensor:
        product = piece.log_ratio().masked_fill(~piece.mask, 0.0).sum(1).clamp(-LIMIT, LIMIT)
        value, clipped = clipped_surrogate(product, _per_row(piece, piece.advantage), low=low, high=high)
        _cut(piece, clipped[:, None])
        return piece.row_mean(value)

    return Term("rloo", loss, credit=True, everywhere=False)


@TERMS.register()
def cispo(clip: Clip = (None, 4.0), *, aggregate: Aggregation = "token-mean", constant: float | None = None) -> Term:
    """Loss term: CISPO (2506.13585), -sg[clip(r, 1 - low, 1 + high)]·A·log π: every token keeps its gradient.

    TRL's `epsilon_high` is the cap itself, 1 + high here; verl has two ends, ε = 0.2 by default.
    """
    low, high = ends("cispo", clip)

    def per_token(piece: MicroBatch) -> Tensor:
        ratio = piece.log_ratio().detach().exp()
        kept = bounded(ratio, low, high)
        _cut(piece, ratio != kept)
        return -kept * piece.advantage * piece.new

    return policy_loss("cispo", per_token, aggregate, constant)


@TERMS.register()
def sapo(
    positive: float = 1.0,
    negative: float = 1.05,
    *,
    aggregate: Aggregation = "sequence-mean",
    constant: float | None = None,
) -> Term:
    """Loss term: SAPO (2511.20347), -4/τ · σ(τ·(r - 1)) · A, a soft gate for a clip; τ = positive where A > 0.

    τ is `negative` elsewhere.
    """
    number("sapo", low=1e-6, positive=positive, negative=negative)

    def per_token(piece: MicroBatch) -> Tensor:
        tau = torch.where(piece.advantage > 0, positive, negative).to(piece.new.dtype)
        return -torch.sigmoid(tau * (piece.log_ratio().exp() - 1)) * 4 / tau * piece.advantage

    return policy_loss("sapo", per_token, aggregate, constant)


@TERMS.register()
def gpg(*, aggregate: Aggregation = "token-mean", constant: float | None = None) -> Term:
    """Loss term: GPG (2504.02546), REINFORCE on stored samples: -A·log π, without a ratio."""
    return policy_loss("gpg", lambda piece: -piece.advantage * piece.new, aggregate, constant)


@TERMS.register()
def reinforce(truncate: float = 2.0, *, aggregate: Aggregation = "sequence-sum", constant: float | None = None) -> Term:
    """Loss term: REINFORCE with truncated importance weights, -sg[min(r, truncate)]·A·log π (verl's `bypass_mode`)."""
    number("reinforce", low=0.0, truncate=truncate)

    def per_token(piece: MicroBatch) -> Tensor:
        ratio = piece.log_ratio().detach().exp()
        _cut(piece, ratio > truncate)
        return -ratio.clamp(max=truncate) * piece.advantage * piece.new

    return policy_loss("reinforce", per_token, aggregate, constant)


@TERMS.register()
def dppo(
    clip: Clip = 0.2,
    *,
    divergence: Literal["tv", "kl"] = "tv",
    truncate: float = 20.0,
    aggregate: Aggregation = "token-mean",
    constant: float | None = None,
) -> Term:
    """Loss term: DPPO (2602.04879), -sg[min(r, truncate)]·A·log π on tokens whose probability moved little so far.

    tv: A > 0 needs π - π_old <= high, else >= -low. kl: binary KL(π_old ‖ π) <= high (low), or π on the other side.
    """
    low, high = (np.inf if end is None else float(end) for end in ends("dppo", clip))
    choice("dppo", ("tv", "kl"), divergence=divergence)
    number("dppo", low=0.0, truncate=truncate)

    def per_token(piece: MicroBatch) -> Tensor:
        with torch.no_grad():
            now, then = piece.new.exp(), piece.old.exp()
            if divergence == "tv":
                up, down = now - then <= high, now - then >= -low
            else:
                moved = then * (piece.old - piece.new)
                moved = moved + (1 - then) * torch.log((1 - then + 1e-8) / (1 - now + 1e-8))
                up, down = (moved <= high) | (now <= then), (moved <= low) | (now >= then)
            fine = torch.where(piece.advantage > 0, up, down)
            _cut(piece, ~fine & (piece.advantage != 0))
            weight = piece.log_ratio().exp().clamp(max=truncate) * fine
        return -piece.advantage * weight * piece.new

    return policy_loss("dppo", per_token, aggregate, constant)


@TERMS.register()
def dro(beta: float = 0.1, *, aggregate: Aggregation = "token-mean", constant: float | None = None) -> Term:
    """Loss term: direct reward optimisation (2405.19107), -(A·log π - β/2·(log r)²)."""
    number("dro", low=0.0, beta=beta)

    def per_token(piece: MicroBatch) -> Tensor:
        return beta / 2 * piece.log_ratio().square() - piece.advantage * piece.new

    return policy_loss("dro", per_token, aggregate, constant, everywhere=True)


@TERMS.register()
def vespo(
    positive: Sequence[float] = (2.0, 3.0),
    negative: Sequence[float] = (3.0, 2.0),
    *,
    aggregate: Aggregation = "token-mean",
    constant: float | None = None,
) -> Term:
    """Loss term: VESPO (2602.10693), -sg[φ(w)]·A·log π, φ(w) = e^λ·w^k·e^(-λ·w), w the product of a turn's ratios.

    positive, negative: (k, λ) where A >= 0 and where A < 0; φ(1) = 1.
    """
    (k, rate), (k_below, rate_below) = positive, negative
    number("vespo", low=0.0, k=k, k_below=k_below)
    number("vespo", low=1e-4, rate=rate, rate_below=rate_below)

    def per_token(piece: MicroBatch) -> Tensor:
        with torch.no_grad():
            product = piece.log_ratio().masked_fill(~piece.mask, 0.0).sum(1, keepdim=True)
            product = product.clamp(float(np.log(1e-8)), LIMIT)
            up = piece.advantage >= 0
            power, fall = torch.where(up, k, k_below), torch.where(up, rate, rate_below)
            weight = (fall + power * product - fall * product.exp()).exp()
        return -weight.to(piece.new.dtype) * piece.advantage * piece.new

    return policy_loss("vespo", per_token, aggregate, constant)


# -- with the covariance of advantage and log-probability, which takes a whole step -----------------------------------


@TERMS.register()
def clip_cov(
    clip: Clip = 0.2,
    *,
    share: float = 2e-4,
    low: float = 1.0,
    high: float = 5.0,
    aggregate: Aggregation = "token-mean",
    constant: float | None = None,
) -> Term:
    """Loss term: Clip-Cov (2505.22617), the surrogate without a random `share` of tokens of covariance in (low, high).

    Covariance: (A - mean A)·(log π - mean log π), means over the tokens of the step; at least one token is taken, none
    that the surrogate clips. Which ones depends on the number of the update and of the step alone.
    """
    bottom, top = ends("clip_cov", clip)
    number("clip_cov", low=1e-9, high=1.0, share=share)
    number("clip_cov", low=low, high=high)

    def per_token(piece: MicroBatch) -> Tensor:
        loss, clipped = clipped_surrogate(piece.log_ratio(), piece.advantage, low=bottom, high=top)
        covariance = _covariance(piece)
        marked = (covariance > low) & (covariance < high) & piece.mask & ~clipped
        places = marked.flatten().nonzero()[:, 0]
        number_ = max(int(share * piece.tokens), 1)
        drawn = np.random.default_rng((piece.step.updates, piece.step.number)).permutation(len(places))[:number_]
        left = torch.zeros_like(piece.mask).flatten()
        left[places[torch.from_numpy(drawn).to(places.device)]] = True
        left = left.view_as(piece.mask)
        _cut(piece, clipped | left)
        return loss.masked_fill(left, 0.0)

    return policy_loss("clip_cov", per_token, aggregate, constant, everywhere=True, whole=True)


@TERMS.register()
def kl_cov(
    weight: float = 0.1, *, share: float = 2e-4, aggregate: Aggregation = "token-mean", constant: float | None = None
) -> Term:
    """Loss term: KL-Cov (2505.22617), -r·A, plus weight·|log r| on the `share` of tokens with the highest covariance.

    The covariance is that of `clip_cov`; at least one token is taken.
    """
    number("kl_cov", low=0.0, weight=weight)
    number("kl_cov", low=1e-9, high=1.0, share=share)

    def per_token(piece: MicroBatch) -> Tensor:
        raw = piece.log_ratio()
        covariance = _covariance(piece).masked_fill(~piece.mask, -torch.inf).flatten()
        top = covariance.topk(min(max(int(share * piece.tokens), 1), len(covariance))).indices
        held = torch.zeros_like(covariance)
        held[top] = weight
        return -raw.exp() * piece.advantage + held.view_as(raw) * raw.abs()

    return policy_loss("kl_cov", per_token, aggregate, constant, everywhere=True, whole=True)


def _covariance(piece: MicroBatch) -> Tensor:
    def centred(values: Tensor) -> Tensor:
        return values - values[piece.mask].mean()

    return centred(piece.advantage) * centred(piece.new.detach())


def _per_row(piece: MicroBatch, values: Tensor) -> Tensor:
    """Mean over the tokens of each row, [rows]; 0 for a row without any."""
    return values.masked_fill(~piece.mask, 0.0).sum(1) / piece.mask.sum(1).clamp(min=1)
