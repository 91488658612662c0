"""Parameters and optimisers as they were, so that an update that fails leaves no trace."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

Snapshot = list[tuple[torch.nn.Parameter, Tensor, dict[str, Tensor]]]
"""Every parameter with its value and what its optimiser knows about it."""


def snapshot(optimisers: Iterable[torch.optim.Optimizer]) -> dict[torch.optim.Optimizer, Snapshot]:
    """A copy of all that the optimisers change, and of what they know."""
    return {
        optimiser: [
            (p, p.detach().clone(), {key: value.clone() for key, value in optimiser.state.get(p, {}).items()})
            for group in optimiser.param_groups
            for p in group["params"]
        ]
        for optimiser in optimisers
    }


def restore(before: dict[torch.optim.Optimizer, Snapshot]) -> None:
    """Inverse of `snapshot`."""
    for optimiser, snapshot in before.items():
        optimiser.state.clear()
        for parameter, value, state in snapshot:
            parameter.data.copy_(value)
            if state:
                optimiser.state[parameter] = state
