"""Budgets: how often each task of an iteration is played, by the chance of success that its start promises.

V₀ [98] puts the two parts together: `palaestra.credit.ValueAtStart` predicts, `allocate_budget` spends. Left out: an
encoder of text, for which any function can be named; the default hashes words.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.credit import ValueAtStart, allocate_budget, mixed_group_probability, rare_success
from palaestra.credit.budget import Utility
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError, nearest
from palaestra.foundation.registry import load_object
from palaestra.learning.stages.cells import hashed
from palaestra.learning.stages.stage import Context, Stage, stage

if TYPE_CHECKING:
    from palaestra.play.executors import Plan

WORDS = 32
"""Numbers that a text becomes."""
UTILITIES: dict[str, Utility] = {"mixed": mixed_group_probability, "rare_success": rare_success}


def array_of(start: Observation) -> np.ndarray:
    """Array of the features of a first observation: its own array, or the hashed words of its text."""
    return hashed(pl.Series([start.text]), WORDS)[0] if start.array is None else np.ravel(start.array)


@stage
class predicted_budget(Stage):
    """Stage: gives more episodes to tasks whose first observation predicts successes as well as failures.

    The `groups` × `group_size` episodes of an iteration are spread over its groups ([98]). Until both success and
    failure are known, all get the same; a task whose start cannot be seen counts as even.

    Args:
        minimum: episodes that every group gets. last: episodes of the past that the prediction is made from; 256 in V₀.
        features: what is known of a task before it is played, as an array: a function of its first observation, or
            `module:name` of one; default `array_of`.
        value: makes the predictor; anew in every iteration, since the policy is another.
        utility: what the next episode of a task is worth: "mixed", the chance that its group has successes and
            failures; "rare_success", V₀'s own, which gives most to tasks that are rarely solved.

    Raises:
        InputError: minimum, last or utility is not allowed.
    """

    needs = ("group", "episode", "success")
    notes = ("_asked",)

    def __init__(
        self,
        *,
        minimum: int = 2,
        last: int = 256,
        features: Callable[[Observation], np.ndarray] | str = array_of,
        value: Callable[[], ValueAtStart] = ValueAtStart,
        utility: Literal["mixed", "rare_success"] = "mixed",
    ) -> None:
        if utility not in UTILITIES:
            raise InputError(f"predicted_budget: utility={utility!r}{nearest(str(utility), UTILITIES)}")
        if minimum < 1 or last < 2:
            raise InputError(f"predicted_budget: minimum={minimum} must be at least 1 and last={last} at least 2")
        self.minimum, self.last, self.value, self.utility = minimum, last, value, UTILITIES[utility]
        self.features = load_object(features, "predicted_budget: features") if isinstance(features, str) else features
        self._known: list[tuple[np.ndarray, float]] = []
        self._asked: list[np.ndarray | None] = []

    def plan(self, plan: Plan, context: Context) -> Plan:
        """Plan with the same number of episodes, at least `minimum` for each group."""
        starts = context.executor.starts(context.env, plan)
        self._asked = [None if start is None else np.asarray(self.features(start), float) for start in starts]
        seen = [group for group, asked in enumerate(self._asked) if asked is not None]
        chances = np.full(len(starts), 0.5)
        solved = np.array([share for _, share in self._known])
        if seen and solved.min(initial=1) <= 0.5 < solved.max(initial=0):
            model = self.value().fit(np.array([x for x, _ in self._known]), solved)
            chances[seen] = model.predict(np.array([self._asked[group] for group in seen]))
        total = plan.episodes
        sizes = [int(size) for size in allocate_budget(chances, total, minimum=self.minimum, utility=self.utility)]
        return dataclasses.replace(plan, group_size=sizes)

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table unchanged; stores outcomes: an episode is solved if more than half of its agents succeeded."""
        good = turns.frame.filter(pl.col("success").is_not_null())
        agents = good.unique(["group", "episode", "agent"]).group_by("group", "episode")
        for group, _, share in agents.agg(pl.col("success").mean()).sort("group", "episode").iter_rows():
            asked = self._asked[group] if group < len(self._asked) else None  # others were not planned
            if asked is not None:
                self._known.append((asked, float(share)))
        self._known = self._known[-self.last :]
        return turns

    def state_dict(self) -> dict[str, Any]:
        """State: features of observed tasks and their outcomes."""
        return {"features": np.array([x for x, _ in self._known]), "solved": np.array([s for _, s in self._known])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self._known = list(zip(np.asarray(state["features"]), np.asarray(state["solved"]).tolist(), strict=True))
