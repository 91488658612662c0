"""Budgets in training: how often each task of an iteration is played, by the chance of success that its start promises.

V₀ [98] puts the two parts together: `palaestra.credit.ValueAtStart` predicts, `allocate_budget` spends. Left out: what
turns text into features, for which any embedding can be given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.credit import ValueAtStart, allocate_budget
from palaestra.envs.base import Observation
from palaestra.errors import InputError


class Budget(Protocol):
    """Asked before an iteration is played, told afterwards; its state is part of every checkpoint.

    `str` of it says its settings: a run goes on only with those that it was begun with.
    """

    def sizes(self, starts: Sequence[Observation | None], total: int) -> list[int]:
        """Episodes of each group, at least one, `total` in all; see `palaestra.play.rollout.starts`."""

    def learn(self, turns: Turns) -> None:
        """What came of the groups whose sizes were asked for last."""

    def state_dict(self) -> dict[str, Any]:
        """All that it remembers: arrays and plain values."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""


def array_of(start: Observation) -> np.ndarray:
    """The features that the env gives.

    Raises:
        InputError: it gives text only.
    """
    if start.array is None:
        raise InputError("PredictedBudget: the env shows text only; give features=, which makes an array of it")
    return np.ravel(start.array)


class PredictedBudget:
    """More episodes for the tasks whose group is likelier to be mixed, some solved and some not, and so to teach.

    Until both success and failure are known, all get the same; a task whose start cannot be seen counts as even.

    Args:
        minimum: episodes that every group gets. last: episodes of the past that the prediction is made from; 256 in V₀.
        features: what is known of a task before it is played, as an array.
        value: makes the predictor; anew in every iteration, since the policy is another.
    """

    def __init__(
        self,
        *,
        minimum: int = 2,
        last: int = 256,
        features: Callable[[Observation], np.ndarray] = array_of,
        value: Callable[[], ValueAtStart] = ValueAtStart,
    ) -> None:
        if minimum < 1 or last < 2:
            raise InputError(f"PredictedBudget: minimum={minimum} must be at least 1 and last={last} at least 2")
        self.minimum, self.last, self.features, self.value = minimum, last, features, value
        self._known: list[tuple[np.ndarray, float]] = []
        self._asked: list[np.ndarray | None] = []

    def __str__(self) -> str:
        return f"PredictedBudget(minimum={self.minimum}, last={self.last})"

    def sizes(self, starts: Sequence[Observation | None], total: int) -> list[int]:
        """See `Budget`."""
        self._asked = [None if start is None else np.asarray(self.features(start), float) for start in starts]
        seen = [group for group, asked in enumerate(self._asked) if asked is not None]
        chances = np.full(len(starts), 0.5)
        solved = np.array([share for _, share in self._known])
        if seen and solved.min(initial=1) <= 0.5 < solved.max(initial=0):
            model = self.value().fit(np.array([x for x, _ in self._known]), solved)
            chances[seen] = model.predict(np.array([self._asked[group] for group in seen]))
        return [int(size) for size in allocate_budget(chances, total, minimum=self.minimum)]

    def learn(self, turns: Turns) -> None:
        """See `Budget`; an episode that did not fail counts as solved if more than half of its agents succeeded."""
        good = turns.frame.filter(pl.col("error").is_null(), pl.col("success").is_not_null())
        agents = good.unique(["group", "episode", "agent"]).group_by("group", "episode")
        for group, _, share in agents.agg(pl.col("success").mean()).sort("group", "episode").iter_rows():
            asked = self._asked[group]
            if asked is not None:
                self._known.append((asked, float(share)))
        self._known = self._known[-self.last :]

    def state_dict(self) -> dict[str, Any]:
        """See `Budget`."""
        return {"features": np.array([x for x, _ in self._known]), "solved": np.array([s for _, s in self._known])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Budget`."""
        self._known = list(zip(np.asarray(state["features"]), np.asarray(state["solved"]).tolist(), strict=True))
