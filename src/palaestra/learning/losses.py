"""Formulas of losses: log-ratios, clipping, aggregation, KL estimates, EPO's corridor, log-odds.

Pure functions on padded tensors `[rows, tokens]`: a row is one turn of one agent, `mask` (bool) is True on real tokens.
What stands on padding never reaches a result. `palaestra.learning.terms` makes terms of an objective from them.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from palaestra.agents.backends.head import in_chunks
from palaestra.agents.policy import Distribution, Scored
from palaestra.errors import InputError, nearest

Level = Literal["token", "sequence"]
Aggregation = Literal["token-mean", "sequence-mean", "sequence-sum", "token-sum", "constant"]
KLEstimator = Literal["exact", "k1", "k2", "k3", "abs", "k1+", "k3+", "abs+"]
LEVELS, AGGREGATIONS, ESTIMATORS = get_args(Level), get_args(Aggregation), get_args(KLEstimator)

LIMIT = 20.0
"""Log-ratios are cut here, as verl does: a stale token must not make a loss or a gradient infinite."""


def log_ratio(new: Tensor, old: Tensor, mask: Tensor, *, level: Level = "token") -> Tensor:
    """Log importance ratio per token, log-probabilities `new` - `old` cut to ±20; level "sequence": mean over a row.

    token: log π(y_t) - log π_old(y_t) (PPO 1707.06347, GRPO 2402.03300).
    sequence: every token carries the mean of these over its row, log s = 1/|y| Σ_t (log π - log π_old), in the form
    with a stop-gradient, sg[log s] + log π(y_t) - sg[log π(y_t)] (GSPO-token, 2507.18071): all tokens of a row have one
    ratio and are clipped together, each keeps its own gradient, so advantages may differ by token. With one advantage
    per row and `sequence-mean`, value and gradient are those of the plain sequence form (GSPO). A row is a turn: for
    an agent of several turns this is the turn-level ratio.
    """
    if level == "token":
        return (new - old).clamp(-LIMIT, LIMIT)
    detached = new.detach()
    difference = (detached - old).masked_fill(~mask, 0.0).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)
    return (difference + new - detached).clamp(-LIMIT, LIMIT)


def clipped_surrogate(
    log_ratio: Tensor,
    advantage: Tensor,
    *,
    low: float | None = 0.2,
    high: float | None = 0.2,
    dual: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Pair (PPO's clipped surrogate loss per token of `log_ratio` and `advantage`, mask where it clipped the gradient).

    L = -min(r·A, clip(r, 1 - low, 1 + high)·A) with r = exp(log_ratio) (PPO 1707.06347; high > low: DAPO 2503.14476).
    An end that is None is open. dual = c > 1: where A < 0 the loss is at most c·|A| (dual clip, 1912.09729; TRL's
    `delta`).
    """
    ratio = log_ratio.exp()
    plain, limited = -ratio * advantage, -bounded(ratio, low, high) * advantage
    loss = torch.maximum(plain, limited)
    clipped = limited > plain
    if dual is not None:
        ceiling = -dual * advantage
        over = (advantage < 0) & (loss > ceiling)
        loss, clipped = torch.where(over, ceiling, loss), clipped | over
    return loss, clipped


def bounded(ratio: Tensor, low: float | None, high: float | None) -> Tensor:
    """The ratio clipped to [1 - low, 1 + high]; an end that is None is open."""
    if low is None and high is None:
        return ratio
    return ratio.clamp(None if low is None else 1 - low, None if high is None else 1 + high)


def aggregate(
    loss: Tensor,
    mask: Tensor,
    *,
    how: Aggregation = "token-mean",
    constant: float | None = None,
    rows: int | None = None,
    tokens: int | None = None,
) -> Tensor:
    """Scalar loss from a loss per token, [rows, tokens], over the tokens of `mask`, by one of five means or sums.

    token-mean: Σ / number of tokens: long answers weigh more (DAPO 2503.14476; BNPO 2506.02864 when a step is a batch).
    sequence-mean: mean over rows of the mean over the row's tokens (GRPO 2402.03300; needed for GSPO).
    sequence-sum: mean over rows of the sum over the row's tokens (REINFORCE over answers; LUSPO 2602.05261).
    constant: Σ / (rows · constant): no length bias; the constant is the longest possible answer (Dr. GRPO 2503.20783).
    token-sum: Σ.

    rows, tokens: the denominators, if the tensors are only a part of what the mean runs over (gradient accumulation;
    rows left out because their loss is 0). Parts aggregated in this way add up to the whole.
    """
    loss = loss.masked_fill(~mask, 0.0)
    if how == "token-mean":
        return loss.sum() / max(int(mask.sum()) if tokens is None else tokens, 1)
    if how == "token-sum":
        return loss.sum()
    rows = len(loss) if rows is None else rows
    if how == "sequence-mean":
        return (loss.sum(1) / mask.sum(1).clamp(min=1)).sum() / max(rows, 1)
    if how == "sequence-sum":
        return loss.sum() / max(rows, 1)
    if how != "constant":
        raise InputError(f"aggregate: how={how!r} is unknown{nearest(str(how), AGGREGATIONS)}")
    if not constant:
        raise InputError("aggregate='constant' needs constant=, the tokens of the longest answer")
    return loss.sum() / (max(rows, 1) * constant)


def kl_estimate(logprobs: Tensor, reference: Tensor, *, estimator: KLEstimator = "k3") -> Tensor:
    """KL(π ‖ reference) per token from log-probabilities of tokens that π sampled; d = log ref - log π.

    k1: -d, unbiased, noisy, may be negative; as a *loss* useless: its gradient ∇log π has mean zero.
    k2: d²/2, biased, but its gradient is that of KL(π ‖ reference) on average.
    k3: e^d - d - 1, unbiased, never negative (GRPO 2402.03300); its gradient pulls towards the reference, though it is
    not that of KL(π ‖ reference). d is cut to ±20 there. verl also cuts the result at 10, TRL cuts nothing.
    abs: |d|. With a plus: the value of this one, the gradient of k2 (verl's straight-through form).

    Raises:
        InputError: there is no such estimator; the exact one needs logits, see `kl_exact`.
    """
    difference = reference - logprobs
    match estimator.removesuffix("+"):
        case "k1":
            value = -difference
        case "k2":
            value = difference.square() / 2
        case "k3":
            cut = difference.clamp(-LIMIT, LIMIT)
            value = torch.expm1(cut) - cut
        case "abs":
            value = difference.abs()
        case _:
            raise InputError(f"kl_estimate: estimator={estimator!r} is unknown{nearest(estimator, ESTIMATORS[1:])}")
    if not estimator.endswith("+"):
        return value
    straight = difference.square() / 2
    return straight - straight.detach() + value.detach()


def kl_exact(logits: Tensor, reference: Tensor) -> Tensor:
    """Exact KL(π ‖ reference) = Σ_v π (log π - log ref) per token, from logits [rows, tokens, vocabulary].

    Logits may be -inf, in both, where an action is illegal.
    """
    log_p, log_q = logits.log_softmax(-1), reference.log_softmax(-1)
    difference = (log_p - log_q).masked_fill(log_p == float("-inf"), 0.0)
    return (log_p.exp() * difference).sum(-1)


def kl_between(now: Scored, then: Scored) -> Tensor:
    """`kl_exact` of two `Scored` of the same tokens, [rows, tokens]; in chunks where their vocabularies are large."""
    distribution = now.distribution
    if not isinstance(distribution, Distribution) or not isinstance(then.distribution, Distribution):
        return kl_exact(now.logits, then.logits)
    make, other = distribution.make, then.distribution.make
    found = in_chunks(lambda at: kl_exact(make(at), other(at)), distribution.tokens, distribution.step)
    return torch.zeros(now.mask.shape, device=found.device).masked_scatter(now.mask, found)


def log_odds(logprobs: Tensor) -> Tensor:
    """Log-odds log(p / (1 - p)) from log p < 0, numerically stable."""
    below = logprobs.clamp(max=-1e-7)
    # log(1 - p) has two forms, each exact where the other is not; the unused one must not spoil the gradient
    near, far = below.clamp(min=-math.log(2)), below.clamp(max=-math.log(2))
    return below - torch.where(below > -math.log(2), torch.log(-torch.expm1(near)), torch.log1p(-far.exp()))


def two_sided(margin: Tensor, smoothing: float) -> Tensor:
    """Label-smoothed preference loss per pair of `margin` m: -(1 - ε)·log σ(m) - ε·log σ(-m), ε `smoothing`."""
    return -(1 - smoothing) * F.logsigmoid(margin) - smoothing * F.logsigmoid(-margin)


def entropy_corridor(
    entropy: Tensor,
    mask: Tensor,
    history: float | None,
    *,
    low: float = 0.8,
    high: float = 1.2,
    smooth: float = 1.0,
    share: Tensor | None = None,
    rows: int | None = None,
) -> Tensor:
    """EPO's smoothing loss, a scalar: mean distance of tokens' entropy from a corridor around `history`; 0 if None.

    Entropy smoothing of arXiv 2509.22576.

    It is smooth · mean of P, P = max(0, low·H̄ - H) + max(0, H - high·H̄) per token.

    H̄ (`history`): mean batch entropy of all earlier steps; None at the first, where P is 0. The mean runs over tokens,
    then rows, weighted by `share` [rows, 1]: with rows / (episodes · rows of its episode) it is one over turns, then
    episodes. rows: as in `aggregate`. The released code puts a constant where the corridor is left, which has no
    gradient; this is the paper's hinge.
    """
    if history is None:
        return entropy.masked_fill(~mask, 0.0).sum() * 0.0
    outside = (low * history - entropy).clamp(min=0) + (entropy - high * history).clamp(min=0)
    outside = outside if share is None else outside * share
    return smooth * aggregate(outside, mask, how="sequence-mean", rows=rows)


def corridor_weight(step: int, steps: int, *, decay: float = 1.0) -> float:
    """EPO's weight β = 1 + exp(-`decay` · `step` / ⌊`steps` / 2⌋), which falls from 2 towards 1.

    >>> [round(corridor_weight(k, 40), 4) for k in (0, 10, 20, 40)]
    [2.0, 1.6065, 1.3679, 1.1353]
    """
    return 1.0 + math.exp(-decay * step / max(steps // 2, 1))


def epo_entropy(
    entropy: Tensor,
    mask: Tensor,
    history: float | None,
    *,
    step: int,
    steps: int,
    weight: float,
    decay: float = 1.0,
    share: Tensor | None = None,
    rows: int | None = None,
    **corridor: float,
) -> Tensor:
    """EPO's term of the policy loss, a scalar: -`weight` · (mean token entropy - `corridor_weight` · corridor loss)."""
    bonus = aggregate(entropy if share is None else entropy * share, mask, how="sequence-mean", rows=rows)
    penalty = entropy_corridor(entropy, mask, history, share=share, rows=rows, **corridor)
    return -weight * (bonus - corridor_weight(step, steps, decay=decay) * penalty)
