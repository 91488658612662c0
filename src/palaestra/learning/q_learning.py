"""Independent Q-learners (Watkins 1989): each table learns from its own turns, as if the others were the world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.agents.qtable import QTablePolicy
from palaestra.errors import InputError
from palaestra.learning.protocol import LEARNERS
from palaestra.learning.tables import TableLearner, choices, finite

if TYPE_CHECKING:
    from palaestra.agents import Team
    from palaestra.algebra.turns import Turns


@LEARNERS.register("q_learning")
class QLearner(TableLearner):
    """Learner of `q_table` policies by Q-learning: Q(s, a) moves by `rate` towards r + γ max Q(s', ·).

    Turns of an episode are learned from in their order, those of all episodes at once. An agent's last turn has the
    target r; if its episode was cut off, or `continuing`, nothing is known of what follows, and it is left out.

    Args:
        rate: in (0, 1]. gamma: γ in [0, 1]; 0 is a learner without foresight. reward: column of r. continuing: the
            game goes on beyond the end of its episodes. gradient: fields of `policy_gradient` for the other policies.

    Raises:
        InputError: no policy of the team is a `q_table`, or a number is out of range.
    """

    def __init__(
        self,
        team: Team,
        *,
        rate: float = 0.1,
        gamma: float = 0.95,
        reward: str = "reward",
        continuing: bool = False,
        **gradient: Any,
    ) -> None:
        if not 0 < rate <= 1 or not 0 <= gamma <= 1:
            raise InputError(f"learn.kind q_learning: rate={rate} in (0, 1], gamma={gamma} in [0, 1]")
        super().__init__(team, QTablePolicy, "q_learning", reward=reward, **gradient)
        self.rate, self.gamma, self.continuing = rate, gamma, continuing

    def reads(self) -> set[str]:
        """Columns that it reads: the reward, states and the keys of turns."""
        return {self.reward, "state", "turn", "group", "episode", "agent"}

    def rows(self, turns: Turns, name: str) -> pl.DataFrame:
        """Turns to learn from, with `after`, the next state that the agent saw, and `wave`, its turn's number."""
        rows = self.played(turns, name).sort("turn", maintain_order=True)
        keys = [key for key in ("run", "iteration", "group", "episode", "agent") if key in rows.columns]
        rows = rows.with_columns(pl.int_range(pl.len()).over(keys).alias("wave"), _next("state", keys, "after"))
        if "legal" in rows.columns:
            rows = rows.with_columns(_next("legal", keys, "possible"))
        known = pl.col("after").is_not_null() | (not self.continuing)
        if "truncated" in rows.columns:
            known = known & (pl.col("after").is_not_null() | ~pl.col("truncated").fill_null(False).any().over(keys))
        return rows.filter(known, pl.col(self.reward).is_not_null())

    def write(self, name: str, rows: pl.DataFrame) -> None:
        """Update the Q-table of one policy, wave by wave: the first turns of all episodes, then the second ones."""
        table = self.tables[name]
        assert isinstance(table, QTablePolicy)
        rows = rows.sort("wave", maintain_order=True)
        here, actions, rewards = (
            table.places(rows["state"].to_list()),
            choices(rows),
            finite(rows, self.reward, self.kind),
        )
        goes_on = rows["after"].is_not_null().to_numpy()
        there = np.zeros(len(rows), np.int64)
        there[goes_on] = table.places(rows["after"].drop_nulls().to_list())
        barred = np.where(_possible(rows, table.actions), 0.0, -np.inf)
        ends = np.flatnonzero(np.diff(rows["wave"].to_numpy(), append=-1)) + 1
        for wave in map(slice, [0, *ends[:-1]], ends):
            ahead = (table.values(there[wave]) + barred[wave]).max(axis=1)
            targets = rewards[wave] + self.gamma * np.where(goes_on[wave], ahead, 0.0)
            table.learn(here[wave], actions[wave], targets, self.rate)
        table.count()


def _next(column: str, keys: Sequence[str], name: str) -> pl.Expr:
    return pl.col(column).shift(-1).over(keys).alias(name)


def _possible(rows: pl.DataFrame, actions: int) -> np.ndarray:
    """Legal actions in the next state, bool[rows, actions]; all where nothing is said."""
    legal = np.ones((len(rows), actions), bool)
    if "possible" in rows.columns:
        listed = rows["possible"].is_not_null().to_numpy()
        legal[listed] = rows["possible"].drop_nulls().explode().to_numpy().reshape(-1, actions)
    return legal
