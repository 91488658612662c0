"""The learner of seats that are bandits: what came of each choice goes into its table of arms.

`learn: {kind: bandit}` updates every `BanditPolicy` of a team, and trains its other policies by `policy_gradient` with
the same fields of `learn`. Feedback may come late: a choice is learned from when the episode that it belongs to is
over. Left out: off-policy estimates (the log-probabilities that they need are in the table).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.agents.bandits import BanditPolicy
from palaestra.learning.protocol import LEARNERS
from palaestra.learning.tables import TableLearner, choices, finite

if TYPE_CHECKING:
    from palaestra.agents import Team


@LEARNERS.register("bandit")
class BanditLearner(TableLearner):
    """Learner of bandit policies: updates their arms by rewards, and other policies by policy gradient.

    reward: column of what a choice was worth, per turn of the bandit; a missing one is not learned from. cost: column
    of what it cost, for `ratio_ucb`. weight: column of how many plays a turn stands for. gradient: fields of
    `policy_gradient` for the other policies that learn.

    Raises:
        InputError: no policy of the team is a bandit, or a field is wrong.
    """

    def __init__(
        self, team: Team, *, reward: str = "reward", cost: str | None = None, weight: str | None = None, **gradient: Any
    ) -> None:
        super().__init__(team, BanditPolicy, "bandit", reward=reward, **gradient)
        self.bandits = {name: each for name, each in self.tables.items() if isinstance(each, BanditPolicy)}
        self.cost, self.weight = cost, weight

    def reads(self) -> set[str]:
        """Columns that it reads: reward, cost and weight, and the features of contexts if there are any."""
        contexts = {"features"} if any(each.index == "linucb" for each in self.bandits.values()) else set()
        return {*self.numbers(), *contexts}

    def numbers(self) -> tuple[str, ...]:
        """Names of the columns of reward, cost and weight, as far as they are given."""
        return tuple(name for name in (self.reward, self.cost, self.weight) if name)

    def write(self, name: str, rows: pl.DataFrame) -> None:
        """Update the arms of one bandit by its rows."""
        linear = self.bandits[name].index == "linucb"
        self.bandits[name].update(
            choices(rows),
            finite(rows, self.reward, "bandit"),
            costs=finite(rows, self.cost, "bandit") if self.cost else None,
            weights=finite(rows, self.weight, "bandit") if self.weight else None,
            propensities=np.exp(rows["logprobs"].list.first().cast(pl.Float64).to_numpy()),
            contexts=np.array(rows["features"].to_list(), float) if linear else None,
        )
