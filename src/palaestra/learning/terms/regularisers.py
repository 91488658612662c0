"""Regularisers: KL to the start, entropy bonus, EPO's corridor."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from palaestra.errors import InputError
from palaestra.learning.losses import (
    ESTIMATORS,
    Aggregation,
    KLEstimator,
    epo_entropy,
    kl_between,
    kl_estimate,
)
from palaestra.learning.losses import (
    aggregate as aggregated,
)
from palaestra.learning.objective import TERMS, Term
from palaestra.learning.terms.term import MicroBatch, choice, how_to_aggregate, number, share_of_episodes


@TERMS.register()
def kl(
    weight: float = 0.1,
    estimator: KLEstimator = "exact",
    *,
    aggregate: Aggregation = "token-mean",
    constant: float | None = None,
    corrected: bool = False,
) -> Term:
    """Loss term: weight · KL(π ‖ π_start), towards the policy as it was when the learner was made.

    estimator: "exact" sums over the vocabulary; k1, k2, k3, abs and verl's k1+, k3+, abs+ need only the sampled token;
    see `losses.kl_estimate`. corrected: times the ratio r (DeepSeek-V3.2 2512.02556).

    Weights do not transfer between trainers, because averages differ. Here it is a mean over the tokens of the step,
    whatever the surrogate does. verl averages it as its policy loss, by `loss_agg_mode` (give the same `aggregate`).
    TRL adds it to the loss of each token before its own mean, which by `loss_type` is over sequences (grpo:
    `aggregate="sequence-mean"`), over tokens (dapo, bnpo) or by a constant (dr_grpo). The default estimator of both is
    k3, whose gradient is another one than that of the exact KL.
    """
    number("kl", low=0.0, weight=weight)
    choice("kl", ESTIMATORS, estimator=estimator)
    how_to_aggregate("kl", aggregate, constant)

    def loss(piece: MicroBatch) -> Tensor:
        reference = piece.reference()
        if estimator == "exact":
            per_token = kl_between(piece.scored, reference)
        else:
            then = reference.logprobs.masked_fill(~piece.mask, 0.0)
            per_token = kl_estimate(piece.new, then, estimator=estimator)
        if corrected:
            per_token = per_token * piece.log_ratio().exp()
        found = piece.mean(per_token, aggregate, constant)
        piece.log("kl", found if aggregate == "token-mean" else piece.mean(per_token.detach()))
        return weight * found

    return Term("kl", loss, credit=corrected, reference=True)


@TERMS.register()
def entropy(weight: float = 0.01, *, aggregate: Aggregation = "token-mean", constant: float | None = None) -> Term:
    """Loss term: -weight · entropy of the policy, by default a mean over tokens; a weight below 0 sharpens it."""
    number("entropy", weight=weight)
    how_to_aggregate("entropy", aggregate, constant)
    return Term("entropy", lambda piece: -weight * piece.mean(piece.scored.entropies, aggregate, constant))


@TERMS.register()
def corridor(
    weight: float = 0.01, low: float = 0.8, high: float = 1.2, *, smooth: float = 1.0, decay: float = 1.0
) -> Term:
    """Loss term: EPO [166] (2509.22576), an entropy bonus, and a penalty for leaving the corridor of past entropy.

    -weight·(H - β·smooth·penalty), see `losses.epo_entropy`: entropy is held between low and high times its mean over
    all earlier updates. decay: EPO's γ, how fast β falls from 2 towards 1 over the `updates` that the learner is told
    of. Means run over the tokens of a turn, the turns of an episode, the episodes.
    """
    number("corridor", low=1e-12, weight=weight)
    number("corridor", low=0.0, smooth=smooth, decay=decay)
    if not 0 <= low <= 1 <= high:
        raise InputError(f"corridor: low={low!r}, high={high!r}, expected 0 <= low <= 1 <= high")

    def loss(piece: MicroBatch) -> Tensor:
        share = torch.from_numpy(piece.once(lambda: share_of_episodes(piece.step.table))[piece.at])
        share = share.to(piece.new)
        entropies, past = piece.scored.entropies, piece.memory.get("history", [])
        held = aggregated(entropies.detach() * share, piece.mask, how="sequence-mean", rows=piece.rows)
        piece.log("entropy_held", held)
        return epo_entropy(
            entropies, piece.mask, float(np.mean(past)) if past else None, step=piece.step.updates,
            steps=piece.step.planned or 1, weight=weight, rows=piece.rows, share=share, decay=decay, low=low, high=high,
            smooth=smooth,
        )  # fmt: skip

    def remember(memory: dict[str, Any], metrics: Any) -> None:
        if metrics.get("entropy_held") is not None:
            memory.setdefault("history", []).append(metrics["entropy_held"])

    return Term("corridor", loss, needs=("episode",), planned=True, after=remember)
