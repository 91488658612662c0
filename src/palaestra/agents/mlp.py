"""`MLPPolicy`: a small network from `Observation.array` to action logits, for envs that are numbers, not text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from palaestra.agents.discrete import DiscretePolicy
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError

if TYPE_CHECKING:
    import polars as pl


class MLPPolicy(DiscretePolicy):
    """Trainable softmax policy: MLP with tanh layers of sizes `hidden`, from `inputs` features to `actions` logits.

    The parameters are drawn from `seed`.
    """

    KIND = "mlp"
    SETTINGS: ClassVar[tuple[str, ...]] = ("inputs", "actions", "hidden", "name")

    def __init__(
        self, inputs: int, actions: int, *, hidden: Sequence[int] = (64, 64), name: str = "mlp", seed: int = 0
    ) -> None:
        sizes = [inputs, *hidden]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            layers: list[torch.nn.Module] = []
            for width, following in pairwise(sizes):
                layers += [torch.nn.Linear(width, following), torch.nn.Tanh()]
            module = torch.nn.Sequential(*layers, torch.nn.Linear(sizes[-1], actions))
        super().__init__(module, actions=actions, name=name)
        self.inputs, self.hidden, self.width = inputs, tuple(hidden), sizes[-1]

    def misfit(self, observation: Observation) -> str | None:
        """Reason why an observation does not fit, also if it has the wrong number of features; None if it fits."""
        size = None if observation.array is None else np.size(observation.array)
        if size != self.inputs:
            found = "no array" if size is None else f"{size} features"
            return f"InputError: the observation has {found}, policy {self.name!r} reads {self.inputs}"
        return super().misfit(observation)

    def logits(self, observations: Sequence[Observation]) -> torch.Tensor:
        """Logits of `Observation.array`, flattened, [observations, actions]."""
        return self._apply(np.array([np.asarray(o.array).ravel() for o in observations], np.float32))

    def logits_of_rows(self, rows: pl.DataFrame) -> torch.Tensor:
        """Logits of the column `features`, [rows, actions]."""
        return self._apply(self.features_of_rows(rows))

    def features_of_rows(self, rows: pl.DataFrame) -> np.ndarray:
        """The column `features`, float32[rows, inputs]."""
        features = rows["features"]
        if features.null_count() or not (features.list.len() == self.inputs).all():
            raise InputError(f"MLPPolicy.score: every row needs {self.inputs} features")
        return features.explode().to_numpy().astype(np.float32).reshape(len(rows), self.inputs)

    def represent(self, features: torch.Tensor) -> torch.Tensor:
        """Activations of the last hidden layer, [rows, width], which the logits and auxiliary heads read."""
        for layer in list(self.module.children())[:-1]:
            features = layer(features)
        return features

    def _apply(self, features: np.ndarray) -> torch.Tensor:
        device = next(self.module.parameters()).device
        found: torch.Tensor = self.module(torch.from_numpy(features).to(device))
        return found
