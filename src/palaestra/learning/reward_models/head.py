"""`head`: layers on frozen features, BaseReward's [13] recipe (2509.16127): two layers, SiLU, plain Bradley-Terry."""

from __future__ import annotations

import itertools
from typing import Any, Literal, get_args

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn

from palaestra.errors import InputError, nearest
from palaestra.learning.reward_models.data import Labels, Preferences
from palaestra.learning.reward_models.features import Join, features, scale_of
from palaestra.learning.reward_models.network import Inputs, NetworkReward
from palaestra.learning.reward_models.reward_model import REWARD_MODELS, keep_options

Activation = Literal["silu", "tanh", "relu", "gelu"]
ACTIVATIONS = {"silu": nn.SiLU, "tanh": nn.Tanh, "relu": nn.ReLU, "gelu": nn.GELU}


class Layers(nn.Module):
    """MLP of `layers` linear layers, `hidden` wide, on standardised vectors; the means and deviations are weights."""

    mean: Tensor
    spread: Tensor

    def __init__(self, inputs: int, outputs: int, layers: int, hidden: int, activation: str) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("spread", torch.ones(inputs))
        sizes = [inputs, *[hidden] * (layers - 1), outputs]
        parts: list[nn.Module] = []
        for a, b in itertools.pairwise(sizes):
            parts += [nn.Linear(a, b), ACTIVATIONS[activation]()]
        self.net = nn.Sequential(*parts[:-1])

    def forward(self, x: Tensor) -> Tensor:
        """Outputs [rows, outputs] of inputs [rows, inputs]."""
        out: Tensor = self.net((x - self.mean) / self.spread)
        return out


class FeatureReward(NetworkReward):
    """Base class of reward models that read a column of features: one vector per row, one network of `Layers`."""

    features: str
    join: Join = "concat"
    epochs = 20
    outputs_of = 1

    def vector(self, rows: pl.DataFrame, reference: pl.DataFrame | None, condition: pl.DataFrame | None) -> np.ndarray:
        """Input vectors of rows, float64[rows, inputs]; NaN where something is missing."""
        return features(rows, condition, name=self.features, method=self.join, who=self.name)

    def layers(self, inputs: int) -> nn.Module:
        """New network for so many inputs."""
        o = self.options
        return Layers(inputs, self.outputs_of, o.get("layers", 1), o.get("hidden", 1), o.get("activation", "silu"))

    def encode(self, rows: pl.DataFrame, reference: pl.DataFrame | None, condition: pl.DataFrame | None) -> Inputs:
        """Input vectors of rows as a float32 tensor."""
        x = self.vector(rows, reference, condition)
        there = self.module.mean.shape[0] if isinstance(self.module, Layers) else x.shape[1]
        if x.shape[1] != there:
            raise InputError(f"{self.name}: rows have {x.shape[1]} numbers, it was fitted to {there}")
        return Inputs(torch.from_numpy(np.nan_to_num(x)).float(), ~np.isnan(x).any(1))

    def forward(self, inputs: Inputs, index: np.ndarray) -> Tensor:
        """Network output: one number per row, or `outputs_of`."""
        found: Tensor = self.ready()(inputs.data[torch.from_numpy(index)])
        return found[:, 0] if self.outputs_of == 1 else found

    def offset(self) -> nn.Parameter | None:
        """Bias of the last layer."""
        if not isinstance(self.module, Layers):
            return None
        last = self.module.net[-1]
        return last.bias if isinstance(last, nn.Linear) else None

    def prepare(self, data: Preferences | Labels, seed: int) -> None:
        """Make the network unless there is one, which is then trained further."""
        if self.module is not None:
            return
        given = data.both() if isinstance(data, Preferences) else (data.rows, data.reference, data.condition)
        self.module = self.made(self.vector(*given), seed)

    def made(self, x: np.ndarray, seed: int) -> nn.Module:
        """New network for vectors like these, standardised by them."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = self.layers(x.shape[1])
        if isinstance(module, Layers):
            mean, spread = scale_of(x)
            module.mean.copy_(torch.from_numpy(mean))
            module.spread.copy_(torch.from_numpy(spread))
        return module

    def shaped(self, state: dict[str, Tensor]) -> nn.Module:
        """New network of the shapes of these weights."""
        return self.layers(len(state["mean"]))


def check_layers(who: str, layers: Any, hidden: Any, activation: Any) -> None:
    """Raise InputError for options of a network that cannot be made."""
    if not all(isinstance(x, int) and x >= 1 for x in (layers, hidden)):
        raise InputError(f"{who}: layers={layers!r} and hidden={hidden!r} must be whole numbers of at least 1")
    if activation not in ACTIVATIONS:
        raise InputError(f"{who}: activation={activation!r}{nearest(str(activation), get_args(Activation))}")


@REWARD_MODELS.register("head")
class HeadReward(FeatureReward):
    """Reward model by a small network on a column of features; one layer is linear, two with SiLU are BaseReward's.

    A condition's `features` stand beside the row's ("concat"), or are multiplied with them ("outer": bilinear with one
    layer). Learns from pairs (bt) or labels (regression, binary; ranknet, listnet, ce inside groups).
    """

    kind = "head"

    def __init__(
        self,
        features: str = "features",
        *,
        layers: int = 2,
        hidden: int = 64,
        activation: Activation = "silu",
        join: Join = "concat",
        name: str = "head",
    ) -> None:
        check_layers("head", layers, hidden, activation)
        keep_options(self, locals())
        self.features, self.join, self.name = features, join, name
