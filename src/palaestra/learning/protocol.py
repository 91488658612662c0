"""Protocol of learners. `PolicyGradient` is one; others are registered by name.

The verbs are those of hosted trainers: `forward_backward`, `optim_step`, save and load of a state; to sample is a
policy's (`act`). A service that speaks them becomes a learner by one adapter, which sends the rows that have credit,
keeps no parameters, and has the name of a checkpoint on the other side for its state:

    class Hosted:
        updates = 0
        def __init__(self, team, *, service, lr=1e-4):
            self.service, self.lr, self.policies = service, lr, team.policies
        def needs(self): return set()
        def forward_backward(self, turns, *, advantage="advantage"):
            rows = turns.frame.drop_nulls(advantage).select("prompt_ids", "action_ids", "logprobs", advantage)
            return {name: self.service.forward_backward(rows.to_dicts()) for name in self.policies}
        def optim_step(self):
            self.service.optim_step(lr=self.lr)
            self.updates += 1
        def update(self, turns, *, advantage="advantage", rng=None):
            metrics = self.forward_backward(turns, advantage=advantage)
            self.optim_step()
            return metrics
        def state(self): return {"updates": self.updates, "name": self.service.save_state()}
        def restore(self, state):
            self.updates = state["updates"]
            self.service.load_state(state["name"])

Its policy asks the service to sample, and has an empty `state_dict`. `tests/learning/test_hosted.py` is this, complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from palaestra.agents.policy import Learnable
from palaestra.foundation.registry import Registry

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

    from palaestra.algebra.turns import Turns

Metrics = dict[str, float | int | None]
"""What an update says about one policy: a number per name, None where there was nothing to measure."""


@runtime_checkable
class LearnedPolicy(Protocol):
    """Protocol of a policy as a trainer needs it: a name and a state (empty, if that is kept elsewhere)."""

    name: str

    def state_dict(self) -> dict[str, Any]:
        """State for checkpoints."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""


@runtime_checkable
class Learner(Protocol):
    """Protocol of a learner: `update(turns)` changes a team's policies by the credit of their turns -> metrics.

    policies: those that it changes, by name. updates: how many there were.
    A learner may also have `divergence(turns, start=)`, nats per token from the start by policy, which a trainer asks
    for when it looks, `values(turns)`, predictions for stages that want them, and `save(path)` and `load(path)`, which
    write and read its policies and its state without a trainer.
    `inherit(before)`: what it takes over, when a phase begins, from the learner of its kind before.
    """

    @property
    def policies(self) -> Mapping[str, LearnedPolicy]:
        """Trained policies by name."""

    @property
    def updates(self) -> int:
        """Number of updates so far, those before a resume included."""

    def needs(self) -> set[str]:
        """Columns that it reads beside `policy`, `action_ids`, `logprobs` and the advantage."""

    def forward_backward(self, turns: Turns, *, advantage: str = "advantage") -> dict[str, Metrics]:
        """Accumulate the gradients of a table with credit; metrics per policy. No parameter changes yet."""

    def optim_step(self) -> None:
        """Step along the accumulated gradients, clear them, and count an update."""

    def update(
        self, turns: Turns, *, advantage: str = "advantage", rng: np.random.Generator | None = None
    ) -> dict[str, Metrics]:
        """`forward_backward` and `optim_step` as one transaction: it succeeds, or leaves everything as it was."""

    def state(self) -> dict[str, Any]:
        """State for a resume beside the policies' own: tensors, plain values, a name on another side."""

    def restore(self, state: dict[str, Any]) -> None:
        """Inverse of `state`, after the policies' own."""


@runtime_checkable
class Served(Learnable, Protocol):
    """Protocol of a policy trained here, sampled by a server: `sync` gives it weights, `held` keeps them.

    `mismatch` compares its log-probabilities.
    """

    def sync(self, version: int | None = None) -> None:
        """Make sure that the server has the current weights, labelled with this number."""

    def held(self) -> AbstractContextManager[None]:
        """Context in which the server keeps these weights; a twin with others waits until it ends."""

    def mismatch(self, frame: pl.DataFrame) -> dict[str, float]:
        """Differences of the server's log-probabilities from those here, as numbers for the metrics."""


@runtime_checkable
class Inflight(Served, Protocol):
    """Protocol of a `Served` policy whose server takes weights while it answers: `renew(state, version)`.

    inflight: whether that may happen; its decisions then have `token_versions`.
    """

    inflight: bool

    def renew(self, state: Mapping[str, Any], version: int) -> None:
        """Take on this state, updates so far `version`; answers that are being written go on with it."""


LEARNERS: Registry[Learner] = Registry(
    "learner",
    home=(
        "palaestra.learning.learner",
        "palaestra.learning.bandit",
        "palaestra.learning.diversity.learner",
        "palaestra.learning.generations",
        "palaestra.learning.gradient_sharing",
        "palaestra.learning.inverse_soft_q",
        "palaestra.learning.meta_gradient",
        "palaestra.learning.q_learning",
        "palaestra.learning.value_decomposition",
        "palaestra.learning.play",
    ),
    example="policy_gradient",
)
"""What `learn.kind` of a recipe may name; each is called with a team and the options of `learn`."""

VERBS = ("policies", "updates", "needs", "forward_backward", "optim_step", "update", "state", "restore")
"""What a learner has, in a message's order."""
