"""`vector`: several attributes by regression, and a person's direction among them: DPA [84] (2402.18571)."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor

from palaestra.errors import InputError
from palaestra.learning.reward_models.data import Labels, Preferences, matrix
from palaestra.learning.reward_models.head import Activation, FeatureReward, check_layers
from palaestra.learning.reward_models.reward_model import REWARD_MODELS, keep_options


def unit(v: np.ndarray) -> np.ndarray:
    """Vectors scaled to norm 1, float64[..., heads]; InputError if one is all zeros.

    Otherwise their length would be a hidden temperature.

    Raises:
        InputError: one is all zeros.
    """
    norm = np.linalg.norm(v, axis=-1, keepdims=True)
    if (norm == 0).any():
        raise InputError("a direction of weights is all zeros")
    return np.asarray(v / norm)


@REWARD_MODELS.register("vector")
class VectorReward(FeatureReward):
    """Multi-attribute reward model: attributes r(x) in R^k by squared errors; with `weights` v of the condition v·r.

    Labels have a value per head; NaN leaves the loss of its head. layers=1, the default, is the paper's regression.
    """

    kind = "vector"
    learns = ((), ("regression",))
    lr = 1e-2

    def __init__(
        self,
        features: str = "features",
        *,
        heads: int = 2,
        layers: int = 1,
        hidden: int = 64,
        activation: Activation = "silu",
        name: str = "vector",
    ) -> None:
        check_layers("vector", layers, hidden, activation)
        if heads < 2:
            raise InputError(f"vector: heads={heads}, expected at least 2; one is `head`")
        keep_options(self, locals())
        self.features, self.name, self.outputs_of = features, name, heads

    def vector(self, rows: pl.DataFrame, reference: pl.DataFrame | None, condition: pl.DataFrame | None) -> np.ndarray:
        """Input vectors: the features alone; the direction is applied to the outputs."""
        return matrix(rows, self.features, self.name)

    def prepare(self, data: Any, seed: int) -> None:
        """Make the network, for as many attributes as the labels have."""
        if isinstance(data, Labels) and np.asarray(data.value).shape != (len(data), self.outputs_of):
            raise InputError(
                f"{self.name}: labels of shape {np.asarray(data.value).shape}, expected "
                f"({len(data)}, {self.outputs_of})"
            )
        super().prepare(data, seed)

    def values(self, found: Tensor, condition: pl.DataFrame | None) -> Tensor:
        """Scores: all attributes, or v·r with a condition's `weights`."""
        if condition is None:
            return found
        v = matrix(condition, "weights", f"{self.name} (condition)")
        if v.shape[1] != self.outputs_of:
            raise InputError(f"{self.name}: condition has {v.shape[1]} weights for {self.outputs_of} heads")
        return (found.double() * torch.from_numpy(unit(v))).sum(-1)

    def agrees(self, pairs: Preferences) -> np.ndarray:
        """Agreement per pair, as of `RewardModel`; needs a condition, since attributes alone have no order."""
        if pairs.condition is None:
            raise InputError(f"{self.name}: pairs need a condition with `weights` to be compared")
        return super().agrees(pairs)
