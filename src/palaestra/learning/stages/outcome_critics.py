"""Critics of outcomes: the chance of success at the first turn of an attempt, and at each of its turns."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from palaestra.algebra.keys import is_first
from palaestra.algebra.parse import parse
from palaestra.algebra.signals import Keys, evaluate, highest
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.outcome_critic import OutcomeCritic, OutcomeTable
from palaestra.learning.stages.stage import Context, Stage, stage

KINDS = {"table": OutcomeTable, "words": OutcomeCritic}


@stage
class outcome_critics(Stage):
    """Stage: columns `first_value` and `value`, chance of success at a unit's first turn and at each turn.

    DigiRL's two critics [73] (arXiv 2406.11896), by episode or by segment: each has heads that are fitted to resamples
    of the newest turns by cross-entropy; `first_value` is their mean, `value` the least of them. Both are as known
    before this iteration, 1/2 in the first one.

    Args:
        outcome: Text of the signal that is 1 where the unit succeeded; its largest in the unit counts.
        unit: Key of what succeeds or fails: an episode of an agent, or a segment of one.
        kind: "table", a chance for each text, or "words", logistic regression on hashed words.
        heads: Number of heads of each critic.
        memory: Turns that they are fitted to, the newest.

    Raises:
        InputError: A number is below 1, or there is no such kind.
    """

    adds = {
        "first_value": "chance of success at the unit's first turn, mean of the critic's heads",
        "value": "chance of success at the turn, the least of the critic's heads",
    }

    def __init__(
        self,
        outcome: str = "success",
        *,
        unit: Keys = ("episode", "agent"),
        kind: str = "table",
        heads: int = 2,
        memory: int = 20_000,
    ) -> None:
        if kind not in KINDS or min(heads, memory) < 1:
            raise InputError(f"outcome_critics: kind={kind!r} of {sorted(KINDS)}, heads={heads}, memory={memory} >= 1")
        self.unit, self.memory = unit, memory
        self.outcome = highest(parse(outcome, columns=(outcome,)), over=unit)
        self.needs = {"observation", "group", "turn"} | self.outcome.needs() | is_first(over=unit).needs()
        self.first: Any = KINDS[kind](heads=heads)
        self.step: Any = KINDS[kind](heads=heads)
        self._texts: list[str] = []
        self._went: np.ndarray = np.zeros(0)
        self._begins: np.ndarray = np.zeros(0, bool)

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with both columns, from past iterations; then the critics are fitted."""
        went, begins = (np.asarray(each, float) for each in evaluate(turns, self.outcome, is_first(over=self.unit)))
        texts = turns.frame["observation"].fill_null("").to_list()
        told = turns.with_column(
            _first=np.where(begins == 1, self.first.predict(texts).mean(axis=1), -1.0),
            value=self.step.predict(texts).min(axis=1),
        )
        told = told.with_column(first_value=highest("_first", over=self.unit))
        known = ~np.isnan(went)
        self._texts = [*self._texts, *np.array(texts, object)[known].tolist()][-self.memory :]
        self._went = np.concatenate([self._went, np.clip(went[known], 0, 1)])[-self.memory :]
        self._begins = np.concatenate([self._begins, begins[known] == 1])[-self.memory :]
        starts = np.flatnonzero(self._begins)
        if len(starts):
            self.first.fit([self._texts[row] for row in starts], self._went[starts], context.rng)
            self.step.fit(self._texts, self._went, context.rng)
            context.metrics |= {
                "units": float((begins == 1).sum()),
                "success": float(went[known & (begins == 1)].mean()),
            }
        return Turns(told.frame.drop("_first").with_columns(pl.col("first_value", "value").cast(pl.Float64)))

    def state_dict(self) -> dict[str, Any]:
        """State: the critics and the data they are fitted to."""
        return {
            "first": self.first.state_dict(), "step": self.step.state_dict(), "texts": list(self._texts),
            "went": self._went.copy(), "begins": self._begins.copy(),
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.first.load_state_dict(state["first"])
        self.step.load_state_dict(state["step"])
        self._texts, self._went = list(state["texts"]), np.asarray(state["went"], float)
        self._begins = np.asarray(state["begins"], bool)
