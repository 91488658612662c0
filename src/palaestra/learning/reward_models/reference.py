"""`reference`: scores a row beside another, POLAR's [212] discriminator of policies (2507.05197), on features."""

from __future__ import annotations

import numpy as np
import polars as pl

from palaestra.errors import InputError
from palaestra.learning.reward_models.data import matrix
from palaestra.learning.reward_models.features import joined
from palaestra.learning.reward_models.head import Activation, FeatureReward, check_layers
from palaestra.learning.reward_models.reward_model import REWARD_MODELS, keep_options


@REWARD_MODELS.register("reference")
class ReferenceReward(FeatureReward):
    """Reward model of similarity to a reference, fitted to (reference, chosen, rejected) by Bradley-Terry.

    It reads the product and the absolute difference of both columns of features, and the condition's beside them.
    Scores are comparable under one reference only: use them inside groups. On text: `sequence` with a template that
    has {reference}.
    """

    kind = "reference"

    def __init__(
        self,
        features: str = "features",
        *,
        layers: int = 2,
        hidden: int = 64,
        activation: Activation = "silu",
        name: str = "reference",
    ) -> None:
        check_layers("reference", layers, hidden, activation)
        keep_options(self, locals())
        self.features, self.name = features, name

    def vector(self, rows: pl.DataFrame, reference: pl.DataFrame | None, condition: pl.DataFrame | None) -> np.ndarray:
        """Input vectors: x·y beside |x - y|, for features x of the row and y of its reference."""
        if reference is None:
            raise InputError(f"{self.name}: a reference is needed, a row for each row that is scored")
        x, y = (matrix(each, self.features, self.name) for each in (rows, reference))
        if x.shape[1] != y.shape[1]:
            raise InputError(f"{self.name}: rows have {x.shape[1]} features, their references {y.shape[1]}")
        given = None if condition is None else matrix(condition, "features", f"{self.name} (condition)")
        return joined(np.concatenate([x * y, np.abs(x - y)], 1), given, "concat")
