"""The learner of teams in which nobody learns: a recipe plays them, saves their turns and measures them.

`learn: {kind: play}` is for scripts, served models and workflows that are compared as they are. Left out: policies with
parameters, which would stay as they are without a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestra.errors import InputError
from palaestra.learning.protocol import LEARNERS, LearnedPolicy, Metrics

if TYPE_CHECKING:
    from palaestra.agents import Team
    from palaestra.algebra.turns import Turns


@LEARNERS.register("play")
class PlayOnly:
    """Learner that learns nothing: iterations are play alone; other fields of `learn` are ignored.

    Raises:
        InputError: a policy of the team could learn.
    """

    def __init__(self, team: Team, **fields: Any) -> None:
        if learned := [each.name for each in team.trainable]:
            raise InputError(f"learn.kind play: {learned[0]!r} could learn; give it a learner, e.g. policy_gradient")
        self.updates = 0

    @property
    def policies(self) -> Mapping[str, LearnedPolicy]:
        """Empty mapping: no policy is trained."""
        return {}

    def needs(self) -> set[str]:
        """Empty set: no column is read."""
        return set()

    def forward_backward(self, turns: Turns, *, advantage: str = "advantage") -> dict[str, Metrics]:
        """No effect; returns no metrics."""
        return {}

    def optim_step(self) -> None:
        """Count an update and change nothing."""
        self.updates += 1

    def update(
        self, turns: Turns, *, advantage: str = "advantage", rng: np.random.Generator | None = None
    ) -> dict[str, Metrics]:
        """Count an update and change nothing; returns no metrics."""
        self.optim_step()
        return {}

    def state(self) -> dict[str, Any]:
        """Number of updates so far."""
        return {"updates": self.updates}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the number of updates."""
        self.updates = int(state["updates"])
