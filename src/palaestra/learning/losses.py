"""How an advantage moves a policy: ratio level × clipping × aggregation, and what holds the policy back.

Pure functions on padded tensors `[rows, tokens]`: a row is one turn of one agent, `mask` (bool) is True on real tokens.
What stands on padding never reaches a result. Left out on purpose: value losses (no critic), and variants that differ
only in how they are clipped once more (CISPO, SAPO, GMPO).
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

Level = Literal["token", "sequence"]
Aggregation = Literal["token-mean", "sequence-mean", "constant"]
KLEstimator = Literal["exact", "k1", "k3"]


def log_ratio(new: Tensor, old: Tensor, mask: Tensor, *, level: Level = "token") -> Tensor:
    """Log of the importance ratio, per token: [rows, tokens].

    token: log π(y_t) - log π_old(y_t) (PPO 1707.06347, GRPO 2402.03300).
    sequence: every token carries the mean of these over its row, log s = 1/|y| Σ_t (log π - log π_old), in the form
    with a stop-gradient, sg[log s] + log π(y_t) - sg[log π(y_t)] (GSPO-token, 2507.18071): all tokens of a row have one
    ratio and are clipped together, each keeps its own gradient, so advantages may differ by token. With one advantage
    per row and `sequence-mean`, value and gradient are those of the plain sequence form (GSPO). A row is a turn: for
    an agent of several turns this is the turn-level ratio.
    """
    if level == "token":
        return new - old
    detached = new.detach()
    difference = (detached - old).masked_fill(~mask, 0.0).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)
    return difference + new - detached


def clipped_surrogate(
    log_ratio: Tensor,
    advantage: Tensor,
    *,
    low: float | None = 0.2,
    high: float | None = 0.2,
    dual: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Loss per token, and a mask of the tokens whose gradient the clip removed.

    L = -min(r·A, clip(r, 1 - low, 1 + high)·A) with r = exp(log_ratio) (PPO 1707.06347; high > low: DAPO 2503.14476).
    An end that is None is open. dual = c > 1: where A < 0 the loss is at most c·|A| (dual clip, 1912.09729).
    """
    ratio = log_ratio.exp()
    if low is None and high is None:
        clipped_ratio = ratio
    else:
        clipped_ratio = ratio.clamp(None if low is None else 1 - low, None if high is None else 1 + high)
    plain, limited = -ratio * advantage, -clipped_ratio * advantage
    loss = torch.maximum(plain, limited)
    clipped = limited > plain
    if dual is not None:
        ceiling = -dual * advantage
        over = (advantage < 0) & (loss > ceiling)
        loss, clipped = torch.where(over, ceiling, loss), clipped | over
    return loss, clipped


def aggregate(
    loss: Tensor,
    mask: Tensor,
    *,
    how: Aggregation = "token-mean",
    constant: float | None = None,
    rows: int | None = None,
    tokens: int | None = None,
) -> Tensor:
    """One number from a loss per token.

    token-mean: Σ / number of tokens: long answers weigh more (DAPO 2503.14476).
    sequence-mean: mean over rows of the mean over the row's tokens (GRPO 2402.03300; needed for GSPO).
    constant: Σ / (rows · constant): no length bias; the constant is the longest possible answer (Dr. GRPO 2503.20783).

    rows, tokens: the denominators, if the tensors are only a part of what the mean runs over (gradient accumulation;
    rows left out because their loss is 0). Parts aggregated in this way add up to the whole.
    """
    loss = loss.masked_fill(~mask, 0.0)
    if how == "token-mean":
        return loss.sum() / max(int(mask.sum()) if tokens is None else tokens, 1)
    rows = len(loss) if rows is None else rows
    if how == "sequence-mean":
        return (loss.sum(1) / mask.sum(1).clamp(min=1)).sum() / max(rows, 1)
    if constant is None:
        raise ValueError("aggregate(how='constant') needs constant=, the longest answer in tokens")
    return loss.sum() / (max(rows, 1) * constant)


def kl_estimate(logprobs: Tensor, reference: Tensor, *, estimator: Literal["k1", "k3"] = "k3") -> Tensor:
    """KL(π ‖ reference) per token from log-probabilities of tokens that π sampled.

    With d = log ref - log π: k1 = -d, unbiased, noisy, may be negative; k3 = e^d - d - 1, unbiased, never negative
    (GRPO 2402.03300). As a *loss* k1 is useless: its gradient ∇log π has mean zero. The gradient of k3 pulls towards
    the reference, though it is not that of KL(π ‖ reference); `kl_exact` has it.
    """
    difference = reference - logprobs
    if estimator == "k1":
        return -difference
    return torch.expm1(difference) - difference


def kl_exact(logits: Tensor, reference: Tensor) -> Tensor:
    """KL(π ‖ reference) = Σ_v π (log π - log ref) per token, from logits [rows, tokens, vocabulary].

    Logits may be -inf, in both, where an action is illegal.
    """
    log_p, log_q = logits.log_softmax(-1), reference.log_softmax(-1)
    difference = (log_p - log_q).masked_fill(log_p == float("-inf"), 0.0)
    return (log_p.exp() * difference).sum(-1)


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
    """EPO's L_smooth (2509.22576): smooth · mean of P, P = max(0, low·H̄ - H) + max(0, H - high·H̄) per token.

    H̄ (`history`): mean batch entropy of all earlier steps; None at the first, where P is 0. The mean runs over tokens,
    then rows, weighted by `share` [rows, 1]: with rows / (episodes · rows of its episode) it is one over turns, then
    episodes. rows: as in `aggregate`. The released code puts a constant where the corridor is left, which has no
    gradient; this is the paper's hinge.
    """
    if history is None:
        return entropy.sum() * 0.0
    outside = (low * history - entropy).clamp(min=0) + (entropy - high * history).clamp(min=0)
    outside = outside if share is None else outside * share
    return smooth * aggregate(outside, mask, how="sequence-mean", rows=rows)


def corridor_weight(step: int, steps: int, *, decay: float = 1.0) -> float:
    """EPO's β_k = 1 + exp(-γ·k / ⌊K/2⌋), γ = decay: from 2 towards 1 over K steps.

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
    """What EPO adds to the policy's loss: -λ·(mean entropy - β_k · corridor penalty), λ = weight."""
    bonus = aggregate(entropy if share is None else entropy * share, mask, how="sequence-mean", rows=rows)
    penalty = entropy_corridor(entropy, mask, history, share=share, rows=rows, **corridor)
    return -weight * (bonus - corridor_weight(step, steps, decay=decay) * penalty)
