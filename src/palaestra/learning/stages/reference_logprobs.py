"""Log-probabilities under the policies as they were at the start, as a column: for a KL that is part of a reward."""

from __future__ import annotations

from typing import Any

import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.learning.stages.probe import _scores
from palaestra.learning.stages.stage import Context, Stage, stage


@stage
class reference_logprobs(Stage):
    """Stage: column `reference_logprobs`, log-probability of each token under the policy at the stage's first run.

    `logprobs - reference_logprobs` is the k1 estimate of a token's KL to the start, which `comas(beta=0.01)` and other
    credits take from the reward; the term `kl` is a loss instead. Null in rows of policies that do not learn.
    """

    adds = {"reference_logprobs": "log-probability of each token under the policy as it was at first"}
    needs = ("policy", "action_ids", "logprobs")

    def __init__(self) -> None:
        self.models: dict[str, Any] = {}
        self._waiting: dict[str, Any] = {}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with the column."""
        frame = turns.frame.with_row_index("_row")
        found: list[Any] = [None] * len(frame)
        for policy in context.team.trainable:
            spoke = (pl.col("policy").cast(pl.String) == policy.name) & pl.col("action_ids").is_not_null()
            rows = frame.filter(spoke)
            if len(rows):
                scored, _ = _scores(self._model(policy), rows)
                for row, each in zip(rows["_row"].to_list(), scored, strict=True):
                    found[row] = each.tolist()
        return turns.with_column(reference_logprobs=pl.Series(found, dtype=pl.List(pl.Float64)))

    def _model(self, policy: Any) -> Any:
        if policy.name not in self.models:
            model = policy.frozen_copy()
            if policy.name in self._waiting:
                model.load_state_dict(self._waiting.pop(policy.name))
            self.models[policy.name] = model
        return self.models[policy.name]

    def state_dict(self) -> dict[str, Any]:
        """State: the initial policies, by name."""
        return self._waiting | {name: model.state_dict() for name, model in self.models.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`; a model is made when its policy is met."""
        self.models.clear()
        self._waiting = dict(state)
