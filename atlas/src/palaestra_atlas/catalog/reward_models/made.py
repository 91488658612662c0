"""What these reproductions share: rows of features, and who wins by Bradley-Terry."""

from __future__ import annotations

import numpy as np
import polars as pl

from palaestra.learning.reward_models import Preferences


def rows(x: np.ndarray, name: str = "features") -> pl.DataFrame:
    """float[rows, columns] as a column of lists."""
    return pl.DataFrame({name: pl.Series(x.tolist(), dtype=pl.List(pl.Float64))})


def decided(
    x: np.ndarray, utility: np.ndarray, rng: np.random.Generator, *, condition: np.ndarray | None = None
) -> Preferences:
    """Pairs of float[pairs, 2, columns]; a side wins with chance σ(its utility - the other's), float[pairs, 2]."""
    won = (rng.random(len(x)) >= 1 / (1 + np.exp(utility[:, 1] - utility[:, 0]))).astype(int)
    at = np.arange(len(x))
    given = None if condition is None else rows(condition)
    return Preferences(rows(x[at, won]), rows(x[at, 1 - won]), condition=given)
