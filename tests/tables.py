"""What tests of signals share."""

from __future__ import annotations

import numpy as np

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns


def values(signal: Signal, turns: Turns) -> np.ndarray:
    """float64[rows] or [tokens], NaN for what is missing."""
    return np.asarray(signal.evaluate(turns), float)


def episode(**columns: list[object] | list[float] | list[int]) -> Turns:
    """One episode of one agent."""
    size = len(next(iter(columns.values())))
    keys = {"group": [0] * size, "episode": [0] * size, "turn": range(size), "agent": ["a"] * size}
    return Turns(keys | columns)
