"""Features of a row, of what it is compared with and of the condition, as one vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import polars as pl

from palaestra.errors import InputError
from palaestra.learning.reward_models.data import matrix

Features = Callable[[pl.DataFrame, pl.DataFrame | None, pl.DataFrame | None], np.ndarray]
"""Rows, reference and condition of a scorer to float64[rows, features]; NaN where one is missing."""
Join = Literal["outer", "concat"]
FLOOR = 1e-6
"""A feature that moves less than this beside its size is not divided by its spread."""


def joined(x: np.ndarray, condition: np.ndarray | None, method: Join) -> np.ndarray:
    """Array: features `x` alone, or with a condition: all products of both ("outer": bilinear), or side by side."""
    if condition is None:
        return x
    if method == "concat":
        return np.concatenate([x, condition], 1)
    return np.asarray(x[:, :, None] * condition[:, None, :]).reshape(len(x), -1)


def features(rows: pl.DataFrame, condition: pl.DataFrame | None, *, name: str, method: Join, who: str) -> np.ndarray:
    """Matrix of the rows' column `name` joined with column `features` of table `condition`, if any; NaN if missing."""
    given = None if condition is None else matrix(condition, "features", f"{who} (condition)")
    return joined(matrix(rows, name, who), given, method)


def scale_of(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pair (mean, standard deviation) of a matrix's columns over rows without NaN; 1 if they hardly vary."""
    x = x[~np.isnan(x).any(1)]
    if not len(x):
        raise InputError("no row has all its features")
    mean, spread = x.mean(0), x.std(0)
    return mean, np.where(spread > FLOOR * (1 + np.abs(mean)), spread, 1.0)
