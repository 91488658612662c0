"""What a trainer asks of whoever changes the policies. `PolicyGradient` is one learner; others enter by a name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from palaestra.agents.base import Learnable
from palaestra.algebra.registry import Registry

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

    from palaestra.algebra.turns import Turns

Metrics = dict[str, float | int | None]
"""What an update says about one policy: a number per name, None where there was nothing to measure."""


@runtime_checkable
class Learner(Protocol):
    """Moves the policies of a team along what their turns were worth.

    policies: those that it changes, by name. updates: how many there were.
    A learner may also have `divergence(turns, start=)`, nats per token from the start by policy, which a trainer asks
    for when it looks, and `values(turns)`, predictions for stages that want them.
    """

    @property
    def policies(self) -> Mapping[str, Learnable]:
        """Name -> policy."""

    @property
    def updates(self) -> int:
        """Updates so far, those before a resume included."""

    def needs(self) -> set[str]:
        """Columns that it reads beside `policy`, `action_ids`, `logprobs` and the advantage."""

    def update(
        self, turns: Turns, *, advantage: str = "advantage", rng: np.random.Generator | None = None
    ) -> dict[str, Metrics]:
        """Learn from a table with credit; metrics per policy."""

    def state_dict(self) -> dict[str, Any]:
        """What a resume needs beside the policies' own states."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""


@runtime_checkable
class Served(Learnable, Protocol):
    """A policy that learns here and is sampled elsewhere, by a server that has to be given its weights."""

    def sync(self, version: int | None = None) -> None:
        """See that the server has the weights that are here, and calls them by this number."""

    def mismatch(self, frame: pl.DataFrame) -> dict[str, float]:
        """How far the server's log-probabilities are from those here: numbers for the metrics."""


LEARNERS: Registry[Learner] = Registry(
    "learner", home=("palaestra.learning.learner", "palaestra.learning.bandit"), example="policy_gradient"
)
"""What `learn.kind` of a recipe may name; each is called with a team and the options of `learn`."""
