"""Terms for policies that draw a latent: information between latent and action, and a classifier of games.

Both are exact over all latents of a row, so they draw no random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn

from palaestra.agents.policy import Learnable
from palaestra.agents.relational import RelationalPolicy
from palaestra.errors import InputError
from palaestra.learning.objective import TERMS, Term
from palaestra.learning.terms.term import MicroBatch, choice, number


def latent_information(logp: Tensor, chosen: Tensor, prior: Tensor | None = None) -> Tensor:
    """Lower bound of latent-action information, log p(a | z) - log Σ_k w_k p(a | z_k), of `logp` [rows, K], `chosen`.

    With w_k = 1/K it is log(K p_z) - log Σ p_k: 0 if all latents act alike, at most log K.

    Args:
        logp: log p(a | z_k) of one action under K latents, [rows, K].
        chosen: Which of them is z, int64[rows].
        prior: w, [rows, K]; default 1/K each.

    Returns:
        [rows], in nats.

    Source: MRA, arXiv 2108.12988; in its code K latents are drawn from the task encoder and the chosen one is not among
    them, which leaves no upper bound.

    Example:
        >>> p = torch.tensor([[0.9, 0.1, 0.1, 0.1, 0.1], [0.3] * 5])
        >>> [round(abs(each), 5) for each in latent_information(p.log(), torch.tensor([0, 2])).tolist()]
        [1.24171, 0.0]
    """
    under = logp.gather(1, chosen[:, None])[:, 0]
    weights = torch.full_like(logp, -math.log(logp.shape[1])) if prior is None else prior.log()
    return under - torch.logsumexp(weights + logp, 1)


def _of(piece: MicroBatch) -> RelationalPolicy:
    policy = piece.step.policy
    if not isinstance(policy, RelationalPolicy):
        raise InputError(f"term {piece.key}: needs a policy of kind 'relational', found {type(policy).__name__}")
    return policy


@TERMS.register()
def information(weight: float = 0.1, *, prior: str = "uniform") -> Term:
    """Loss term: MRA's bonus [65], -weight · mean `latent_information` of the greedy action under each latent.

    The gradient reaches the relation net alone, not the head or the task encoder. The mean runs over rows and latents.
    It needs a policy of kind `relational`. Metric: `information`, in nats.

    Args:
        weight: Of the bonus.
        prior: "uniform": latents have equal weight, so that they stay different in games that use only one of them;
            "game": their weight is the probability that the task encoder gives them, as in the authors' code.

    Source: arXiv 2108.12988 and its code, where the head of the bonus is a slow copy of the policy's.
    """
    number("information", low=0.0, weight=weight)
    choice("information", ("uniform", "game"), prior=prior)

    def loss(piece: MicroBatch) -> Tensor:
        policy = _of(piece)
        features = policy.features_of_rows(piece.frame)
        logp = torch.log_softmax(policy.choice_logits(features, policy.every_latent(features), only_relation=True), -1)
        rows, count, _ = logp.shape
        greedy = logp.detach().argmax(-1)
        of_all = logp.gather(2, greedy[:, None].expand(-1, count, -1)).transpose(1, 2)  # [rows, latent z, under k]
        weights = torch.full_like(logp[..., 0], 1 / count)
        if prior == "game":
            weights = torch.softmax(policy.latent_logits(features).detach(), -1)
        each = latent_information(
            of_all.flatten(0, 1), policy.every_latent(features).flatten(), weights.repeat_interleave(count, 0)
        ).unflatten(0, (rows, count))
        bonus = piece.row_mean((weights * each).sum(1))
        piece.log("information", bonus)
        return -weight * bonus

    return Term("information", loss)


@TERMS.register()
def task_classifier(column: str = "part", values: Sequence[Any] = (), *, weight: float = 0.1) -> Term:
    """Loss term: MRA's task classifier [65], cross-entropy of a linear head that tells `column`, one of `values`.

    The loss is the expectation over the latents of the task encoder, so its gradient reaches encoder, relation net and
    the linear head, and different games come to draw different latents. Metric: `told_rightly`, the accuracy.

    Args:
        column: Column that names the game, such as `part` of `native/mixture`.
        values: Games that are classified, at least two; rows of other games leave the mean.
        weight: Of the loss.

    Raises:
        InputError: `values` are fewer than two different games, or the policy is not of kind `relational`.

    Source: arXiv 2108.12988 and its code.
    """
    number("task_classifier", low=0.0, weight=weight)
    known = {str(value): place for place, value in enumerate(values)}
    if len(known) < 2 or len(known) != len(values):
        raise InputError(f"task_classifier: values={list(values)} must be at least two different games")

    def make(policy: Learnable) -> nn.Module:
        if not isinstance(policy, RelationalPolicy):
            raise InputError(f"term task_classifier: policy {policy.name!r} must be of kind 'relational'")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            head = nn.Linear(policy.heads * policy.width, len(known))
        return head.to(next(policy.module.parameters()).device)

    def loss(piece: MicroBatch) -> Tensor:
        policy, head = _of(piece), piece.module
        assert head is not None
        games = piece.once(lambda: _numbered(piece, column, known))
        used = max(int((games[piece.step.chosen] >= 0).sum()), 1)
        at = np.flatnonzero(games[piece.at] >= 0)
        if not len(at):
            nothing: Tensor = 0 * head(piece.new.new_zeros(1, policy.heads * policy.width)).sum()
            return nothing
        features = policy.features_of_rows(piece.frame[at])
        wanted = torch.from_numpy(games[piece.at][at]).to(features.device)
        logp = torch.log_softmax(head(policy.relations(features, policy.every_latent(features))), -1)
        chances = torch.softmax(policy.latent_logits(features), -1)
        told = logp.gather(2, wanted[:, None, None].expand(-1, policy.latents, 1))[..., 0]
        right = ((logp.argmax(-1) == wanted[:, None]) * chances.detach()).sum()
        piece.log("told_rightly", right / used)
        found: Tensor = -weight * (chances * told).sum() / used
        return found

    return Term("task_classifier", loss, needs=(column,), module=make)


def _numbered(piece: MicroBatch, column: str, known: dict[str, int]) -> np.ndarray:
    """The game of each row of the update, int64[rows]; -1: none of those known."""
    names = piece.require(column).cast(pl.String).to_list()
    return np.array([known.get(name, -1) for name in names], np.int64)
