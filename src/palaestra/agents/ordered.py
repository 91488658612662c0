"""`OrderedPolicy`: a linear rule over features for actions that have an order, such as shares, prices or amounts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from palaestra.agents.mlp import MLPPolicy
from palaestra.errors import InputError


class OrderedPolicy(MLPPolicy):
    """Trainable softmax policy over ordered actions, centred on a linear point of the scale, clip(w·x + b, 0, 1).

    The k-th of n actions stands at k / (n - 1).

    The logits are -½ ((place - point) / noise)². A policy has as many numbers as there are features, and one more, so
    that a strategy can be read, mutated and inherited (`learn.kind: generations`); gradients move it as well.

    Args:
        inputs, actions: how many features and actions.
        start: mean of the first w, one number per feature, and of b, the last one; default 0, and ½ for b.
        spread: standard deviation around it, one number or one for each; drawn from `seed`.
        noise: standard deviation of what is played around the point.

    Raises:
        InputError: a number is out of range, or a list has another length.
    """

    KIND = "ordered"
    SETTINGS = ("inputs", "actions", "noise", "name")

    def __init__(
        self,
        inputs: int,
        actions: int,
        *,
        start: Sequence[float] | None = None,
        spread: float | Sequence[float] = 0.0,
        noise: float = 0.02,
        name: str = "ordered",
        seed: int = 0,
    ) -> None:
        first = np.array([*[0.0] * inputs, 0.5] if start is None else start, float)
        around = np.array(spread, float)
        if actions < 2 or not noise > 0 or first.shape != (inputs + 1,) or around.shape not in ((), first.shape):
            raise InputError(
                f"OrderedPolicy {name!r}: actions={actions} of at least 2, noise={noise} above 0, start and spread of "
                f"{inputs} features and the constant, so {inputs + 1} numbers"
            )
        super().__init__(inputs, 1, hidden=(), name=name, seed=seed)
        self.actions, self.noise = actions, noise
        first = first + around * np.random.default_rng(seed).normal(size=inputs + 1)
        with torch.no_grad():
            rule: Any = next(self.module.children())
            rule.weight.copy_(torch.from_numpy(first[None, :-1]))
            rule.bias.copy_(torch.from_numpy(first[-1:]))

    def _apply(self, features: np.ndarray) -> torch.Tensor:
        point = super()._apply(features).clamp(0.0, 1.0)
        places = torch.linspace(0.0, 1.0, self.actions, device=point.device)
        return -0.5 * ((places - point) / self.noise) ** 2
