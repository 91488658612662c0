"""Truncated importance sampling: a loss on answers that something else than the learner sampled, a server for example.

The same weights have other log-probabilities in another engine, and rows of an older version have others still. The
ratio of the learner at the start of the update to whoever sampled is a weight without gradient, cut off where it is too
large; the loss inside then compares with the learner at that start, as if the learner had sampled (decoupled PPO,
2110.00641; truncation as verl 0.9.1's `rollout_is` and TRL 1.16's `vllm_importance_sampling_mode` do it).
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from palaestra.algebra.list_columns import ragged
from palaestra.errors import InputError
from palaestra.learning.batch import pieces
from palaestra.learning.losses import LEVELS, LIMIT, Level
from palaestra.learning.objective import TERMS, Term
from palaestra.learning.terms.term import MicroBatch, choice, number

Outside = Literal["cut", "drop"]
CHUNK = 8192
"""Padded tokens that are scored at once."""


@TERMS.register()
def corrected(
    term: str | Term = "surrogate()",
    *,
    level: Level = "token",
    cap: float | None = 2.0,
    floor: float | None = None,
    outside: Outside = "cut",
) -> Term:
    """Loss term that wraps another: multiplies the advantage by w = sg[π_start / π_sampled]; the ratio is π / π_start.

    level: w of each token, or "sequence": one per turn, the product over its tokens. Log-ratios are cut to ±20.
    cap, floor: w is cut to floor ≤ w ≤ cap; with outside="drop" it is 0 beyond them (verl's IcePop, TRL's `*_mask`).
    A weight times the advantage is the weight times the loss, for losses in proportion to the advantage.
    Defaults: verl's; TRL's are level="sequence", cap=3, outside="drop". In the metrics: `weight` (mean), and
    `weights_cut`, the share of tokens whose weight was cut or dropped, both of the rows that are learned from. Several
    steps in one update cost a forward pass more, for π_start. Raises InputError for a term without credit.
    """
    choice("corrected", LEVELS, level=level)
    choice("corrected", ("cut", "drop"), outside=outside)
    number("corrected", low=0.0, **{k: v for k, v in {"cap": cap, "floor": floor}.items() if v is not None})
    if cap is None and floor is None:
        raise InputError("corrected: give cap=, floor= or both; without either nothing is cut")
    if cap is not None and floor is not None and floor >= cap:
        raise InputError(f"corrected: floor={floor} must be below cap={cap}")
    inner = TERMS.build(term) if isinstance(term, str) else term
    if not inner.credit:
        raise InputError(f"corrected: term {inner.name} reads no credit; there is nothing to weigh")

    def loss(piece: MicroBatch) -> Tensor:
        start = _start(piece)
        weight, cut = truncated_weights(
            start - piece.old, piece.mask, level=level, cap=cap, floor=floor, outside=outside
        )
        piece.log("weight", weight.masked_fill(~piece.mask, 0.0).sum(), per="seen")
        piece.log("weights_cut", (cut & piece.mask).sum(), per="seen")
        twin = copy.copy(piece)
        twin.old, twin.advantage = start, piece.advantage * weight
        return inner(twin)

    return dataclasses.replace(inner, name="corrected", loss=loss)


def truncated_weights(
    log_ratio: Tensor,
    mask: Tensor,
    *,
    level: Level = "token",
    cap: float | None = 2.0,
    floor: float | None = None,
    outside: Outside = "cut",
) -> tuple[Tensor, Tensor]:
    """Pair: truncated importance weights [rows, tokens] from log π_start - log π_sampled, and mask of those cut.

    >>> ratio, mask = torch.tensor([[1.0, 0.5]]).log(), torch.ones(1, 2, dtype=torch.bool)
    >>> truncated_weights(ratio + 1.5, mask, cap=3.0)[0], truncated_weights(ratio, mask, level="sequence")[0]
    (tensor([[3.0000, 2.2408]]), tensor([[0.5000, 0.5000]]))
    """
    known = log_ratio.detach().masked_fill(~mask, 0.0)
    if level == "sequence":
        known = known.sum(1, keepdim=True).expand_as(known)
    weight = known.clamp(-LIMIT, LIMIT).exp()
    cut = torch.zeros_like(mask)
    if cap is not None:
        cut = cut | (weight > cap)
    if floor is not None:
        cut = cut | (weight < floor)
    return (weight.masked_fill(cut, 0.0) if outside == "drop" else weight.clamp(floor, cap)), cut


def _start(piece: MicroBatch) -> Tensor:
    """Log-probabilities of the learner before the first step of this update: [rows, tokens]."""
    step = piece.step
    if step.policy is None:
        return piece.new.detach()
    _, _, lengths = ragged(piece.require("action_ids"))
    offsets, policy = np.cumsum(lengths) - lengths, step.policy
    first = piece.key not in step.cache  # steps without credit may have gone by, in which nothing moved
    known = piece.once(lambda: np.zeros(int(lengths.sum()), np.float32))

    def places(rows: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
        real = np.arange(width) < lengths[rows, None]
        return np.where(real, offsets[rows, None] + np.arange(width), 0), real

    if step.number == 0 and len(step.chosen) == step.table.height:  # nothing has moved yet, and all rows come by
        at, real = places(piece.at, piece.new.shape[1])
        known[at[real]] = piece.new.detach().float().cpu().numpy()[real]
        return piece.new.detach()
    if first:
        read = [step.table[name] for name in ("prompt_ids", "context_ids") if name in step.table.columns]
        shown = sum((ragged(column)[2] for column in read), np.zeros_like(lengths))
        with torch.no_grad():
            for rows in pieces(np.arange(len(lengths)), lengths + shown, CHUNK):
                scored = policy.score(step.table[rows]).logprobs
                at, real = places(rows, scored.shape[1])
                known[at[real]] = scored.float().cpu().numpy()[real]
    at, real = places(piece.at, piece.new.shape[1])
    return torch.from_numpy(np.where(real, known[at], np.float32(0))).to(piece.new.device)
