"""`ContextualPolicy`: acts on what it sees and on a context, a vector made of what it saw before in the episode.

The stage `agent_model` trains what makes the context; gradients of credit never reach it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import nn

from palaestra.agents.discrete import DiscretePolicy
from palaestra.agents.encoders import NeighbourEncoder, PrefixEncoder
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError

if TYPE_CHECKING:
    import polars as pl


class ContextualPolicy(DiscretePolicy):
    """Softmax MLP policy on the newest observation of a window of turns and a learned encoding of the window.

    Rows with a column `context` are scored with what stands there, so that log-probabilities stay those of play when
    the encoder has changed since; other rows are encoded.

    Args:
        inputs: length of `Observation.array`, steps · (1 + features). actions: number of choices.
        steps: turns of a window. context: size of the vector. blind: the context is zero, as a control.
        others: options of a `NeighbourEncoder` such as `{"others": 3}`, which then makes the context and says its size;
            none: a `PrefixEncoder` does. hidden: widths of the layers. seed: of the first parameters.

    Raises:
        InputError: inputs is no multiple of steps, a number is below 1, or features are no equal parts for the others.
    """

    KIND = "contextual"
    SETTINGS: ClassVar[tuple[str, ...]] = ("inputs", "actions", "steps", "context", "blind", "others", "hidden", "name")

    def __init__(
        self,
        inputs: int,
        actions: int,
        *,
        steps: int = 16,
        context: int = 8,
        blind: bool = False,
        others: Mapping[str, Any] | None = None,
        hidden: Sequence[int] = (32,),
        name: str = "contextual",
        seed: int = 0,
    ) -> None:
        if min(steps, context) < 1 or inputs % steps or inputs // steps < 2:
            raise InputError(
                f"ContextualPolicy: {inputs} features are no {steps} turns of 1 + features; take an env with "
                f"make: recent, and its steps; context={context} must be at least 1"
            )
        self.inputs, self.steps, self.blind, self.hidden = inputs, steps, blind, tuple(hidden)
        self.features, self.others = inputs // steps - 1, None if others is None else dict(others)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            about = self._neighbours() if others is not None else None
            self.context = context if about is None else about.size
            sizes = [self.features + self.context, *hidden]
            layers: list[nn.Module] = []
            for width, following in pairwise(sizes):
                layers += [nn.Linear(width, following), nn.Tanh()]
            body = nn.Sequential(*layers, nn.Linear(sizes[-1], actions))
            encoder = PrefixEncoder(self.features, steps, context) if about is None else about
        encoder.requires_grad_(False)
        super().__init__(nn.ModuleDict({"body": body, "encoder": encoder}), actions=actions, name=name)

    def _neighbours(self) -> NeighbourEncoder:
        try:
            return NeighbourEncoder(self.features, **(self.others or {}))
        except (TypeError, ValueError) as error:
            raise InputError(f"ContextualPolicy: others={self.others}: {error}") from error

    @property
    def encoder(self) -> nn.Module:
        """The module that encodes windows into contexts; it does not learn from credit."""
        return self.module.get_submodule("encoder")

    def misfit(self, observation: Observation) -> str | None:
        """Reason why an observation does not fit, also if it has the wrong number of features; None if it fits."""
        size = None if observation.array is None else np.size(observation.array)
        if size != self.inputs:
            found = "no array" if size is None else f"{size} features"
            return f"InputError: the observation has {found}, policy {self.name!r} reads {self.inputs}"
        return super().misfit(observation)

    def windows_of_rows(self, rows: pl.DataFrame) -> np.ndarray:
        """The column `features` as windows, float32[rows, steps, 1 + features]."""
        features = rows["features"]
        if features.null_count() or not (features.list.len() == self.inputs).all():
            raise InputError(f"ContextualPolicy: every row needs {self.inputs} features")
        return features.explode().to_numpy().astype(np.float32).reshape(len(rows), self.steps, -1)

    def encode(self, windows: np.ndarray) -> np.ndarray:
        """Contexts, float32[rows, context]; zeros if the policy is blind."""
        if self.blind or not len(windows):
            return np.zeros((len(windows), self.context), np.float32)
        device = next(self.module.parameters()).device
        with torch.no_grad():
            return np.asarray(self.encoder(torch.from_numpy(windows).to(device)).cpu().numpy())

    def logits(self, observations: Sequence[Observation]) -> torch.Tensor:
        """Logits of `Observation.array` and its encoded context, [observations, actions]."""
        arrays = np.array([np.ravel(o.array) for o in observations], np.float32)  # type: ignore[arg-type]
        windows = arrays.reshape(len(arrays), self.steps, -1)
        return self._apply(windows, self.encode(windows))

    def logits_of_rows(self, rows: pl.DataFrame) -> torch.Tensor:
        """Logits of the columns `features` and, if there, `context`, [rows, actions]."""
        windows = self.windows_of_rows(rows)
        if "context" in rows.columns and not rows["context"].null_count():
            context = rows["context"].explode().to_numpy().astype(np.float32).reshape(len(rows), self.context)
        else:
            context = self.encode(windows)
        return self._apply(windows, context)

    def _apply(self, windows: np.ndarray, context: np.ndarray) -> torch.Tensor:
        device = next(self.module.parameters()).device
        read = np.hstack([windows[:, -1, 1:], context])
        found: torch.Tensor = self.module.get_submodule("body")(torch.from_numpy(read).to(device))
        return found
