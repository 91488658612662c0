"""Any scorer between play and reward: a judge, a verifier, a reward model, an ensemble, labels. Fills `score.NAME`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import polars as pl

from palaestra.algebra.keys import is_last
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.judges.metering import Limits
from palaestra.judges.protocol import Scorer
from palaestra.judges.rubric import cases
from palaestra.judges.scorers import build, numbers
from palaestra.learning.stages.asking import Adviser, bind, load_state, state_of
from palaestra.learning.stages.stage import Context, Stage, stage
from palaestra.rewards.judged.criteria import EPISODE, onto


@stage
class score(Stage):
    """Stage: column `score.NAME`, a scorer's score of every turn or episode, null where it gives none.

    At level "episode" the value stands on each agent's last turn, 0 before it, so that a reward is paid once;
    `everywhere` puts it on every turn. A judge's policy is one of the recipe (`judged("rubric.yaml", policy="judge")`);
    its answers are part of the checkpoint or, with `cache`, in a file.

    Args:
        name: of the column. scorer: text (`palaestra names scorer`) or object; it sees `judges.cases`: the turns'
            columns, the task as `prompt` and the transcript as `response`.
        condition: a column of numbers or lists that the scorer is told, as the condition's `features`.
        reference: a column of texts that each row is compared with, as the reference's `response`: an answer that is
            known, or a rival's. The value of a judge is then how likely the row is the better one, in both orders. For
            a reward model that reads features, a column of lists: the reference's features.
        budget: most calls of a policy in the run, or {"tokens": …}, {"price": …}; what is asked beyond it has no value.
            cache: a file of answers.

    Raises:
        InputError: the level is unknown.
        ExpressionError: the text names no scorer.
    """

    def __init__(
        self,
        name: str,
        scorer: str | Scorer,
        *,
        level: Literal["turn", "episode"] = "episode",
        everywhere: bool = False,
        condition: str | None = None,
        reference: str | None = None,
        budget: Limits = None,
        cache: str | None = None,
    ) -> None:
        if level not in ("turn", "episode"):
            raise InputError(f"score: level={level!r} is 'turn' or 'episode'")
        self.scorer = build(scorer)
        self.column, self.level, self.everywhere = f"score.{name}", level, everywhere
        self.asks: Sequence[str] = tuple(getattr(self.scorer, "asks", ()))
        self.advisers = {policy: Adviser(policy, budget=budget, cache=cache) for policy in self.asks}
        self.condition, self.reference = condition, reference
        self.needs = {"episode", "turn", "action", *(each for each in (condition, reference) if each)}
        self.adds = {self.column: f"what {self.scorer.name} gives"}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with the scores."""
        bind(self.scorer, self.advisers, context)
        rows = cases(turns, self.level)
        told = None if self.condition is None else rows.select(features=self.condition)
        beside = None if self.reference is None else rows.select(self._beside(self.reference))
        found = self.scorer.score(rows, reference=beside, condition=told)
        values = numbers(found, len(rows), f"scorer {self.scorer.name}")
        by = (*EPISODE, "turn") if self.level == "turn" else EPISODE
        keys = [name for name in by if name in rows.columns]
        result = onto(turns, rows.select(keys).with_columns(values.alias(self.column)))
        if self.level == "turn" or self.everywhere:
            return result
        last = pl.Series(np.asarray(is_last().evaluate(result))).cast(pl.Boolean)
        once = pl.when(pl.col(self.column).is_null() | last).then(pl.col(self.column)).otherwise(0.0)
        return result.with_column(**{self.column: result.frame.select(once.alias("x"))["x"]})

    def _beside(self, reference: str) -> pl.Expr:
        """The reference's column, by the name under which the scorer reads the row's own."""
        features = getattr(self.scorer, "features", None)
        column = pl.col(reference)
        return column.cast(pl.String).alias("response") if features is None else column.alias(features)

    def state_dict(self) -> dict[str, Any]:
        """State of the scorer's policies and endpoints: amounts spent and answers."""
        return state_of(self.scorer, self.advisers)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        load_state(self.scorer, self.advisers, state)
