"""An evaluator's yes or no to an episode, from its last observations and its last action."""

from __future__ import annotations

from typing import Any

import polars as pl

from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError
from palaestra.judges.metering import Limits
from palaestra.learning.stages.asking import Adviser
from palaestra.learning.stages.stage import Context, Stage, stage

KEY = ["group", "episode"]
QUESTION = "Was the task done? Answer yes or no."


@stage
class final_verdict(Stage):
    """Stage: column `verdict`, whether an evaluator `policy` says that the task was done; null for an unclear answer.

    PAE's evaluator [175] (arXiv 2412.13194): it sees the task, the `last` observations and the last action, nothing of
    what the env pays. Pay it by `outcome_reward("verdict")`. Its metrics: `yes`, the share of the episodes, and
    `unread`, answers that begin with neither yes nor no.

    Args:
        policy: A policy of the recipe, or `module:name` of a function of a request.
        last: Observations that are shown.
        question: What stands below them.
        budget: Most calls of the run, or {"tokens": …}, {"price": …}.

    Raises:
        InputError: last is below 1.
    """

    adds = {"verdict": "the evaluator says that the episode's task was done"}

    def __init__(
        self, policy: str = "evaluator", *, last: int = 3, question: str = QUESTION, budget: Limits = None
    ) -> None:
        if last < 1:
            raise InputError(f"final_verdict: last={last} must be at least 1")
        self.adviser, self.last, self.question = Adviser(policy, budget=budget), last, question
        self.asks = self.adviser.asks
        self.needs = {*KEY, "turn", "task", "observation", "action"}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with `verdict`."""
        rows = turns.frame.select(*KEY, "turn", "task", "observation", "action").sort(*KEY, "turn")
        ends = rows.group_by(KEY, maintain_order=True).agg(
            pl.first("task"), pl.col("observation").tail(self.last), pl.last("action")
        )
        asked = [
            "\n".join(
                [f"Task: {task}", *(f"Observation: {each}" for each in seen), f"Last action: {did}", self.question]
            )
            for task, seen, did in ends.select("task", "observation", "action").iter_rows()
        ]
        requests = [Request(Observation(text), "evaluator", context.rng) for text in asked]
        said = [str(each.action).strip().casefold() for each in self.adviser.begin(context).act(requests)]
        read = [True if each.startswith("yes") else False if each.startswith("no") else None for each in said]
        found = ends.select(KEY).with_columns(verdict=pl.Series(read, dtype=pl.Boolean))
        context.metrics |= {
            "yes": float(found["verdict"].mean() or 0.0), "unread": float(read.count(None))  # type: ignore[arg-type]
        }  # fmt: skip
        return Turns(turns.frame.join(found, on=KEY, how="left", maintain_order="left"))

    def state_dict(self) -> dict[str, Any]:
        """State of the evaluator: amounts spent and answers."""
        return self.adviser.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.adviser.load_state_dict(state)
