"""`against`: any pointwise scorer as one against a reference, RewardDance's [47] form (2509.08826)."""

from __future__ import annotations

import numpy as np
import polars as pl

from palaestra.errors import InputError
from palaestra.judges.protocol import SCORERS, Scorer


@SCORERS.register("against")
class Against:
    """P(row better than its reference) = σ(r(row) - r(reference)), in (0, 1).

    What the scorer adds to all answers to a prompt cancels. Its slope in r is P·(1 - P), so a reference that is far
    behind teaches nothing any more: take references among the best, e.g. the first two of a group.

    Args:
        scorer: a scorer, or its text: 'reward_model("DIR")'.
    """

    def __init__(self, scorer: str | Scorer, *, name: str = "against") -> None:
        self.scorer = SCORERS.build(scorer) if isinstance(scorer, str) else scorer
        self.name = name

    def score(
        self, rows: pl.DataFrame, *, reference: pl.DataFrame | None = None, condition: pl.DataFrame | None = None
    ) -> pl.Series:
        """See the class; null where either is."""
        if reference is None or len(reference) != len(rows):
            raise InputError(f"{self.name}: a reference is needed, a row for each of {len(rows)}")
        ours, theirs = (self.scorer.score(each, condition=condition) for each in (rows, reference))
        lead = ours.cast(pl.Float64) - theirs.cast(pl.Float64)
        return pl.Series(self.name, 1 / (1 + np.exp(-lead.to_numpy())), nan_to_null=True)
