"""Base class of tabular learners: some seats of a team learn by their own rule, the others by gradients.

A rule looks at the turns first and writes later, so that an update that fails leaves everything as it was.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.errors import InputError, LearnerError
from palaestra.learning.batch import check_rewards
from palaestra.learning.learner import PolicyGradient
from palaestra.learning.protocol import LearnedPolicy, Metrics

if TYPE_CHECKING:
    from palaestra.agents import Team
    from palaestra.agents.discrete import DiscretePolicy
    from palaestra.agents.policy import Learnable
    from palaestra.algebra.turns import Turns


class _Rest(PolicyGradient):
    """Policy-gradient learner of the policies beside tables, also while all of them are frozen, for later phases."""

    _may_rest = True


class TableLearner(abc.ABC):
    """Base class of learners of a `Team`: each table by `write` of its rows, the rest by a `PolicyGradient` made here.

    Args:
        team: in which at least one policy is a `table`.
        table: their class. kind: what a recipe calls the learner. reward: column of what a choice was worth.
        gradient: fields of `policy_gradient` for the other policies that learn.

    Raises:
        InputError: no policy of the team is such a table, or a field is wrong.
    """

    def __init__(
        self, team: Team, table: type[DiscretePolicy], kind: str, *, reward: str = "reward", **gradient: Any
    ) -> None:
        self.kind, self.reward = kind, reward
        self.tables = {name: each for name, each in team.policies.items() if isinstance(each, table)}
        if not self.tables:
            raise InputError(
                f"learn.kind {kind}: no policy of the team is one of its tables: policies.NAME.kind: {table.KIND}"
            )
        others = {policy.name for policy in team.trainable}
        moved = others - set(gradient.get("freeze", ()))
        self.rest = _Rest(team, **gradient) if others else None
        self.moving = self.rest if moved else None
        self._updates = 0
        self._waiting: list[tuple[str, pl.DataFrame]] = []

    @property
    def policies(self) -> Mapping[str, LearnedPolicy]:
        """All trained policies by name: tables, then the others."""
        return {**self.tables, **(self.moving.policies if self.moving else {})}

    @property
    def references(self) -> dict[str, Learnable]:
        """References of the other policies, by name."""
        return self.rest.references if self.rest else {}

    @property
    def updates(self) -> int:
        """Number of updates so far."""
        return self._updates

    @updates.setter
    def updates(self, number: int) -> None:
        self._updates = number
        if self.rest:
            self.rest.updates = number

    def reads(self) -> set[str]:
        """Columns that the update rule reads; the reward by default."""
        return {self.reward}

    @abc.abstractmethod
    def write(self, name: str, rows: pl.DataFrame) -> None:
        """Update one table by its rows, at least one; abstract."""

    def needs(self) -> set[str]:
        """Columns that the update rule and the terms read."""
        return self.reads() | (self.moving.needs() if self.moving else set())

    def forward_backward(self, turns: Turns, *, advantage: str = "advantage") -> dict[str, Metrics]:
        """Collect the turns of each table that did not fail and have a reward; no table changes yet.

        Returns:
            per table: rows, reward (mean of what is learned from), best (share of the choice that was taken most).

        Raises:
            MissingColumnError: no such column. RewardError, LearnerError: a number is not finite; nothing is learned.
        """
        ready = self._look(turns)
        metrics = self.moving.forward_backward(turns, advantage=advantage) if self.moving else {}
        return metrics | self._keep(ready)

    def optim_step(self) -> None:
        """Update the tables by the collected turns, and step the other policies."""
        self._write()
        if self.moving:
            self.moving.optim_step()

    def update(
        self, turns: Turns, *, advantage: str = "advantage", rng: np.random.Generator | None = None
    ) -> dict[str, Metrics]:
        """`forward_backward` and `optim_step` in one; other policies as by `policy_gradient`, with its minibatches."""
        ready = self._look(turns)
        metrics = self.moving.update(turns, advantage=advantage, rng=rng) if self.moving else {}
        metrics |= self._keep(ready)
        self._write()
        return metrics

    def rows(self, turns: Turns, name: str) -> pl.DataFrame:
        """Turns that a table learns from: played by it, without an error, with a reward."""
        return self.played(turns, name).filter(pl.col(self.reward).is_not_null())

    def played(self, turns: Turns, name: str) -> pl.DataFrame:
        """The turns of a table that did not fail."""
        part = pl.col("policy").cast(pl.String) == name
        if "error" in turns.columns:
            part = part & pl.col("error").is_null()
        rows = turns.frame.filter(part, pl.col("action_ids").is_not_null())
        for column in self.numbers():
            finite(rows, column, self.kind)
        return rows

    def numbers(self) -> tuple[str, ...]:
        """Names of the columns that must be finite."""
        return (self.reward,)

    def _look(self, turns: Turns) -> dict[str, pl.DataFrame]:
        check_rewards(turns)
        for column in sorted(self.needs()):
            turns[column]
        return {name: self.rows(turns, name) for name in self.tables}

    def _keep(self, ready: Mapping[str, pl.DataFrame]) -> dict[str, Metrics]:
        """Keep the rows until they are written; what is to be said of them."""
        metrics: dict[str, Metrics] = {}
        for name, rows in ready.items():
            self._waiting.append((name, rows))
            taken, rewards = choices(rows), finite(rows, self.reward, self.kind)
            metrics[name] = {
                "loss": None,
                "kl": None,
                "entropy": None,
                "zero_credit": None,
                "rows": len(rows),
                "reward": float(rewards.mean()) if len(rows) else None,
                "best": float(np.bincount(taken).max() / len(taken)) if len(rows) else None,
            }
        return metrics

    def _write(self) -> None:
        for name, rows in self._waiting:
            if len(rows):
                self.write(name, rows)
        self._waiting = []
        self._updates += 1

    def state(self) -> dict[str, Any]:
        """State for a resume beside the policies' own."""
        return {"updates": self._updates, "rest": self.rest.state() if self.rest else None}

    def restore(self, state: dict[str, Any]) -> None:
        """Inverse of `state`."""
        self._updates = state["updates"]
        if self.rest and state["rest"]:
            self.rest.restore(state["rest"])


def choices(rows: pl.DataFrame) -> np.ndarray:
    """Action id of each row of a table, the first of its `action_ids`: int64[rows]."""
    return rows["action_ids"].list.first().to_numpy().astype(np.int64)


def finite(rows: pl.DataFrame, column: str, kind: str) -> np.ndarray:
    """Column of a table as float64[rows], null as 0; raises LearnerError if a number is not finite.

    Raises:
        LearnerError: a number is not finite.
    """
    values = rows[column].cast(pl.Float64).fill_null(0.0).to_numpy()
    if bad := int((~np.isfinite(values)).sum()):
        raise LearnerError(f"learn.kind {kind}: column {column!r} is not finite in {bad} rows")
    return np.asarray(values, float)
