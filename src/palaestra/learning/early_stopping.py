"""Early stopping: of a fit to noisy labels, the parameters whose loss on held-out rows was least."""

from __future__ import annotations

import copy
from typing import Any

from torch import nn


class EarlyStopping:
    """Early stopping: `look` records a held-out loss and says when to stop; `restore` puts back the best parameters.

    Labels whose noise is large (returns, verdicts, denoising targets) are fitted exactly in the end, noise included.
    Held-out rows show when that begins: their loss rises again (arXiv 2401.15604 [151]).

    Args:
        patience: looks without a new least loss after which the fit stops; None: it goes on to its last step.

    Example:
        >>> stopping, module = EarlyStopping(patience=2), nn.Linear(1, 1)
        >>> [stopping.look(step, loss, module) for step, loss in enumerate([3.0, 1.0, 2.0, 2.5])]
        [False, False, False, True]
        >>> stopping.step, stopping.least
        (1, 1.0)
    """

    def __init__(self, patience: int | None = 10) -> None:
        self.patience, self.least, self.step, self.since = patience, float("inf"), 0, 0
        self._kept: dict[str, Any] | None = None

    def look(self, step: int, loss: float, module: nn.Module) -> bool:
        """Record a held-out loss; returns whether the fit should stop now."""
        self.since += 1
        if loss < self.least:
            self.least, self.step, self.since = loss, step, 0
            self._kept = copy.deepcopy(module.state_dict())
        return self.patience is not None and self.since >= self.patience

    def restore(self, module: nn.Module) -> None:
        """Restore the parameters of the least held-out loss into the module."""
        if self._kept is not None:
            module.load_state_dict(self._kept)
