"""In which order a learner takes the rows of an update: all together, or SeeUPO's, later turns first.

`palaestra.credit.sequential_update` has SeeUPO's order and the correction; here are the log-ratios that it asks for.
Left out: credit per token, for which the product of turn ratios is not defined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import numpy as np
import polars as pl
import torch

from palaestra.agents.policy import Learnable
from palaestra.algebra.list_columns import ragged
from palaestra.algebra.turns import Turns
from palaestra.credit.sequential import Order, sequential_update
from palaestra.errors import InputError, nearest
from palaestra.learning.batch import pieces
from palaestra.learning.protocol import Metrics

Key = Literal["turn", "agent"]
Learn = Callable[[Turns, str], dict[str, Metrics]]
"""Takes every policy through its rows of a table, whose credit is in this column."""


class Strategy(Protocol):
    """Protocol of an update strategy, a callable: rows of a table to `learn`, in some order -> {policy: metrics}."""

    def __call__(
        self, learn: Learn, turns: Turns, advantage: str, policies: Iterable[Learnable], rng: np.random.Generator | None
    ) -> dict[str, Metrics]:
        """Call `learn` on all rows, or part by part."""


def together(
    learn: Learn, turns: Turns, advantage: str, policies: Iterable[Learnable], rng: np.random.Generator | None
) -> dict[str, Metrics]:
    """Strategy: returns `learn(turns, advantage)`, all rows in one call, metrics by policy; other arguments unused."""
    return learn(turns, advantage)


@dataclass(frozen=True)
class Sequential:
    """Strategy of SeeUPO [96] (2602.06554): the rows of one turn (or agent) after the other, by updated credit.

    key: "turn" or "agent". order: "reverse", and for comparison "forward" and "random". tokens: as `chunk_tokens`.

    Raises:
        InputError: an option is unknown; when called, the credit is per token or the table lacks the key.
    """

    key: Key = "turn"
    order: Order = "reverse"
    tokens: int = 8192

    def __post_init__(self) -> None:
        for name, value, known in (("sequential", self.key, get_args(Key)), ("order", self.order, get_args(Order))):
            if value not in known:
                raise InputError(f"PolicyGradient: {name}={value!r} is unknown{nearest(str(value), known)}")

    def __call__(
        self, learn: Learn, turns: Turns, advantage: str, policies: Iterable[Learnable], rng: np.random.Generator | None
    ) -> dict[str, Metrics]:
        """Update part by part; returns metrics, counts added up and means weighted by rows."""
        if turns[advantage].dtype.base_type() in (pl.List, pl.Array):
            raise InputError(
                f"PolicyGradient: sequential={self.key!r} needs one advantage per turn, and column {advantage!r} "
                "has one per token; wrap the credit in per_turn()"
            )
        found: list[dict[str, Metrics]] = []

        def update(part: Turns) -> np.ndarray:
            found.append(learn(part, "advantage"))
            return log_ratios(part, policies, self.tokens)

        sequential_update(turns, update, advantage=advantage, key=self.key, order=self.order, rng=rng)
        return {policy.name: _merged([part[policy.name] for part in found]) for policy in policies}


def log_ratios(turns: Turns, policies: Iterable[Learnable], chunk_tokens: int) -> np.ndarray:
    """Array float64[rows] of `Turns`: log π_now - log π_then (`logprobs`) summed over tokens of `policies`; else 0."""
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
    merged: Metrics = {}
    for name in dict.fromkeys(name for part in parts for name in part):
        known = [(part[name], part["rows"] or 0) for part in parts if part.get(name) is not None]
        if name in ("rows", "tokens", "clamped", "seconds"):
            merged[name] = sum(value or 0 for value, _ in known)
        else:
            total = sum(rows for _, rows in known)
            merged[name] = sum((value or 0.0) * rows for value, rows in known) / total if total else None
    return merged
