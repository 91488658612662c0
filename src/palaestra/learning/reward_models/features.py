"""Features of a row, of what it is compared with and of the condition, as one vector."""

from __future__ import annotations

from typing import Literal

import numpy as np
import polars as pl

from palaestra.errors import InputError
from palaestra.learning.reward_models.data import matrix

Join = Literal["outer", "concat"]
FLOOR = 1e-6
"""A feature that moves less than this beside its size is not divided by its spread."""


def joined(x: np.ndarray, condition: np.ndarray | None, how: Join) -> np.ndarray:
    """float64[rows, columns]: x alone; every product of x and the condition ("outer": bilinear); or both in a row."""
    if condition is None:
        return x
    if how == "concat":
        return np.concatenate([x, condition], 1)
    return np.asarray(x[:, :, None] * condition[:, None, :]).reshape(len(x), -1)


def features(rows: pl.DataFrame, condition: pl.DataFrame | None, *, name: str, how: Join, who: str) -> np.ndarray:
    """Columns `name` of the rows, and `features` of the condition, joined; NaN where one is missing."""
    given = None if condition is None else matrix(condition, "features", f"{who} (condition)")
    return joined(matrix(rows, name, who), given, how)


def scale_of(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and spread of each column; 1 where it hardly moves (a hit that is always 1 against 0 must not blow up)."""
    x = x[~np.isnan(x).any(1)]
    if not len(x):
        raise InputError("no row has all its features")
    mean, spread = x.mean(0), x.std(0)
    return mean, np.where(spread > FLOOR * (1 + np.abs(mean)), spread, 1.0)
