"""SeeUPO's order of updates around a learner: later turns first, each part minding what the parts before have become.

`palaestra.credit.sequential_update` has the order and the correction; here are the log-ratios that it asks for. Left
out: credit per token, for which the product of turn ratios is not defined.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import torch

from palaestra.agents.base import Learnable
from palaestra.algebra.turns import Turns
from palaestra.credit.sequential import Order, sequential_update
from palaestra.errors import InputError
from palaestra.learning.batch import make_batch, pieces, ragged

if TYPE_CHECKING:
    from palaestra.learning.learner import Metrics, PolicyGradient

__all__ = ["ORDERS", "Order", "log_ratios", "sequential"]

ORDERS = ("reverse", "forward", "random")


def sequential(
    learner: PolicyGradient, turns: Turns, advantage: str, rng: np.random.Generator | None
) -> dict[str, Metrics]:
    """One update of all policies, part by part; metrics as of `PolicyGradient.update`.

    Raises:
        InputError: the credit is per token, or the table lacks the key.
    """
    assert learner.sequential is not None
    if turns[advantage].dtype.base_type() in (pl.List, pl.Array):
        raise InputError(
            f"PolicyGradient: sequential={learner.sequential!r} needs one advantage per turn, and column {advantage!r} "
            "has one per token; wrap the credit in per_turn()"
        )
    found: dict[str, list[Metrics]] = {name: [] for name in learner.policies}

    def update(part: Turns) -> np.ndarray:
        for name in learner.policies:
            found[name].append(learner.learn(name, make_batch(part, name, "advantage"), rng))
        return log_ratios(part, learner.policies.values(), learner.chunk_tokens)

    sequential_update(turns, update, advantage=advantage, key=learner.sequential, order=learner.order, rng=rng)
    return {name: _merged(parts) for name, parts in found.items()}


def log_ratios(turns: Turns, policies: Iterable[Learnable], chunk_tokens: int) -> np.ndarray:
    """log π_now - log π_then of every turn, summed over its tokens, float64[rows]; 0 for turns of other policies."""
    result = np.zeros(len(turns))
    frame = turns.frame.with_row_index("_row")
    for policy in policies:
        mine = pl.col("policy").cast(pl.String) == policy.name
        rows = frame.filter(mine, pl.col("action_ids").is_not_null(), pl.col("logprobs").is_not_null())
        prompts = ragged(rows["prompt_ids"])[2] if "prompt_ids" in rows.columns else 0
        then, _, lengths = ragged(rows["logprobs"])
        now = np.zeros(len(rows))
        with torch.no_grad():
            for piece in pieces(np.arange(len(rows)), lengths + prompts, chunk_tokens):
                scored = policy.score(rows[piece].drop("_row"))
                now[piece] = scored.logprobs.double().masked_fill(~scored.mask, 0.0).sum(1).cpu().numpy()
        before = np.bincount(np.repeat(np.arange(len(rows)), lengths), then.astype(float), len(rows))
        result[rows["_row"].to_numpy()] = now - before
    return result


def _merged(parts: list[Metrics]) -> Metrics:
    """Counts are added up; what is a mean becomes the mean weighted by rows."""
    merged: Metrics = {}
    for field in parts[0]:
        known = [(part[field], part["rows"] or 0) for part in parts if part[field] is not None]
        if field in ("rows", "tokens", "seconds"):
            merged[field] = sum(value or 0 for value, _ in known)
        else:
            total = sum(rows for _, rows in known)
            merged[field] = sum((value or 0.0) * rows for value, rows in known) / total if total else None
    return merged
