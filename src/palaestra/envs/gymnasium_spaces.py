"""Observations of Gymnasium's spaces as vectors, for the adapters of Gymnasium and of PettingZoo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from palaestra.errors import missing_extra


def features_of(space: Any) -> Callable[[Any], np.ndarray]:
    """Makes the function that turns observations of a Gymnasium space into flat float32 arrays (Discrete: one-hot)."""
    spaces = library().spaces
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return lambda value: np.array(value, dtype=np.float32).ravel()
    if isinstance(space, spaces.Discrete):
        ones = np.eye(int(space.n), dtype=np.float32)
        return lambda value: ones[int(value) - int(space.start)].copy()
    return lambda value: np.array(spaces.flatten(space, value), dtype=np.float32)


def library() -> Any:
    """Imports and returns the package `gymnasium`; raises MissingExtraError if it is not installed."""
    try:
        import gymnasium
    except ImportError:
        raise missing_extra("Gymnasium", "gymnasium") from None
    return gymnasium
