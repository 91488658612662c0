"""Parameters and optimisers as they were, so that an update that fails leaves no trace.

A copy of both is three times the parameters. It is made only for updates of several steps: one step per policy needs
none, because all gradients are known, and checked, before the first parameter moves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from palaestra.agents.tabular import padded

MOMENTS = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")
"""Names of the entries of Adam's state that have the shape of their parameter: its moments."""

Snapshot = list[tuple[torch.nn.Parameter, Tensor, dict[str, Tensor]]]
"""Every parameter with its value and what its optimiser knows about it."""


@contextmanager
def undone_on_error(optimisers: Collection[torch.optim.Optimizer]) -> Iterator[None]:
    """Context manager that restores the parameters and state of optimisers if its block raises."""
    before = {optimiser: _snapshot(optimiser) for optimiser in optimisers}
    try:
        yield
    except BaseException:
        for optimiser, state in before.items():
            _restore(optimiser, state)
        raise


def extend_moments(optimiser: torch.optim.Optimizer) -> None:
    """Extend an optimiser's Adam moments by zeros for the rows by which a parameter has grown since the last step."""
    for parameter, state in optimiser.state.items():
        for name, moment in state.items():
            if name in MOMENTS and moment.shape != parameter.shape:
                state[name] = padded(moment, len(parameter))


def _snapshot(optimiser: torch.optim.Optimizer) -> Snapshot:
    return [
        (p, p.detach().clone(), {key: value.clone() for key, value in optimiser.state.get(p, {}).items()})
        for group in optimiser.param_groups
        for p in group["params"]
    ]


def _restore(optimiser: torch.optim.Optimizer, before: Snapshot) -> None:
    optimiser.state.clear()
    for parameter, value, state in before:
        parameter.data.copy_(value)
        if state:
            optimiser.state[parameter] = state
