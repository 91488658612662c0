"""What a learner is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from palaestra.agents.base import Learnable
from palaestra.algebra.registry import Registry
from palaestra.algebra.turns import Turns

Metrics = dict[str, float | int | None]


class Learner(Protocol):
    """Moves policies along an advantage."""

    policies: Mapping[str, Learnable]
    updates: int
    kl: float

    def needs(self) -> set[str]:
        """Columns that it reads."""

    def update(
        self, turns: Turns, *, advantage: str = "advantage", rng: np.random.Generator | None = None
    ) -> dict[str, Metrics]:
        """One update."""

    def divergence(self, turns: Turns) -> dict[str, float]:
        """How far it is from its start."""

    def state_dict(self) -> dict[str, Any]:
        """State."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse."""


LEARNERS: Registry[Learner] = Registry("learner", home=("palaestra.learning.learner",), example="policy_gradient")
