"""The learner of seats that are bandits: what came of each choice goes into its table of arms.

`learn: {kind: bandit}` updates every `BanditPolicy` of a team, and trains its other policies by `policy_gradient` with
the same fields of `learn`. Feedback may come late: a choice is learned from when the episode that it belongs to is
over. Left out: off-policy estimates (the log-probabilities that they need are in the table).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.agents.bandits import BanditPolicy
from palaestra.errors import InputError, LearnerError
from palaestra.learning.batch import check_rewards
from palaestra.learning.learner import PolicyGradient
from palaestra.learning.protocol import LEARNERS, Learned, Metrics

if TYPE_CHECKING:
    from palaestra.agents import Team
    from palaestra.algebra.turns import Turns


@LEARNERS.register("bandit")
class BanditLearner:
    """Arms of the bandits in a team, gradients for the rest.

    reward: column of what a choice was worth, per turn of the bandit; a missing one is not learned from. cost: column
    of what it cost, for `ratio_ucb`. weight: column of how many plays a turn stands for. gradient: fields of
    `policy_gradient` for the other policies that learn.

    Raises:
        InputError: no policy of the team is a bandit, or a field is wrong.
    """

    def __init__(
        self, team: Team, *, reward: str = "reward", cost: str | None = None, weight: str | None = None, **gradient: Any
    ) -> None:
        self.bandits = {name: each for name, each in team.policies.items() if isinstance(each, BanditPolicy)}
        if not self.bandits:
            raise InputError("learn.kind bandit: no policy of the team is a bandit: policies.NAME.kind: bandit")
        self.reward, self.cost, self.weight = reward, cost, weight
        self.rest = PolicyGradient(team, **gradient) if team.trainable else None
        self._updates = 0
        self._waiting: list[tuple[str, pl.DataFrame]] = []

    @property
    def policies(self) -> Mapping[str, Learned]:
        """Bandits, then the others."""
        return {**self.bandits, **(self.rest.policies if self.rest else {})}

    @property
    def updates(self) -> int:
        """Updates so far."""
        return self._updates

    def needs(self) -> set[str]:
        """The columns of reward and cost, and what the terms read."""
        contexts = {"features"} if any(each.index == "linucb" for each in self.bandits.values()) else set()
        named = {name for name in (self.reward, self.cost, self.weight) if name}
        return {*named, *contexts, *(self.rest.needs() if self.rest else ())}

    def forward_backward(self, turns: Turns, *, advantage: str = "advantage") -> dict[str, Metrics]:
        """Look at the turns of each bandit that did not fail and have a reward; nothing is written yet.

        Returns:
            per bandit: rows, reward (mean of what is learned from), best (share of the arm that was taken most).

        Raises:
            MissingColumnError: no such column. RewardError, LearnerError: a number is not finite; nothing is learned.
        """
        check_rewards(turns)
        for column in sorted(self.needs()):
            turns[column]
        ready = {name: self._rows(turns, name) for name in self.bandits}
        metrics = self.rest.forward_backward(turns, advantage=advantage) if self.rest else {}
        return metrics | self._ready(ready)

    def optim_step(self) -> None:
        """Write what was looked at into the tables, and move the other policies."""
        self._write()
        if self.rest:
            self.rest.optim_step()

    def update(
        self, turns: Turns, *, advantage: str = "advantage", rng: np.random.Generator | None = None
    ) -> dict[str, Metrics]:
        """Both; the other policies are updated as `policy_gradient` does it, with its minibatches and epochs."""
        check_rewards(turns)
        for column in sorted(self.needs()):
            turns[column]
        ready = {name: self._rows(turns, name) for name in self.bandits}
        metrics = self.rest.update(turns, advantage=advantage, rng=rng) if self.rest else {}
        metrics |= self._ready(ready)
        self._write()
        return metrics

    def _ready(self, ready: Mapping[str, pl.DataFrame]) -> dict[str, Metrics]:
        """Keep the rows until they are written; what is to be said of them."""
        metrics: dict[str, Metrics] = {}
        for name, rows in ready.items():
            self._waiting.append((name, rows))
            arms = rows["action_ids"].list.first().to_numpy().astype(np.int64)
            metrics[name] = {
                "loss": None, "kl": None, "entropy": None, "zero_credit": None, "rows": len(rows),
                "reward": float(rows[self.reward].cast(pl.Float64).mean()) if len(rows) else None,  # type: ignore[arg-type]
                "best": float(np.bincount(arms).max() / len(arms)) if len(arms) else None,
            }  # fmt: skip
        return metrics

    def _write(self) -> None:
        for name, rows in self._waiting:
            if not len(rows):
                continue
            self.bandits[name].update(
                rows["action_ids"].list.first().to_numpy().astype(np.int64),
                rows[self.reward].cast(pl.Float64).to_numpy(),
                costs=rows[self.cost].cast(pl.Float64).fill_null(0.0).to_numpy() if self.cost else None,
                weights=rows[self.weight].cast(pl.Float64).fill_null(0.0).to_numpy() if self.weight else None,
                propensities=np.exp(rows["logprobs"].list.first().cast(pl.Float64).to_numpy()),
                contexts=np.array(rows["features"].to_list(), float) if self.bandits[name].index == "linucb" else None,
            )
        self._waiting = []
        self._updates += 1

    def _rows(self, turns: Turns, name: str) -> pl.DataFrame:
        part = (pl.col("policy").cast(pl.String) == name) & pl.col(self.reward).is_not_null()
        if "error" in turns.columns:
            part = part & pl.col("error").is_null()
        rows = turns.frame.filter(part, pl.col("action_ids").is_not_null())
        for column in filter(None, (self.reward, self.cost, self.weight)):
            bad = ~np.isfinite(rows[column].cast(pl.Float64).fill_null(0.0).to_numpy())
            if bad.any():
                raise LearnerError(f"bandit {name!r}: column {column!r} is not finite in {bad.sum()} rows")
        return rows

    def state(self) -> dict[str, Any]:
        """What a resume needs beside the policies' own states."""
        return {"updates": self._updates, "rest": self.rest.state() if self.rest else None}

    def restore(self, state: dict[str, Any]) -> None:
        """Inverse of `state`."""
        self._updates = state["updates"]
        if self.rest:
            self.rest.restore(state["rest"])
