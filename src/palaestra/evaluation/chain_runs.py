"""An agent of yours in AgencyBench's protocol [93]: `palaestra analyze 'attempt_chain("my_module:agent", subtasks=3)'`.

The protocol itself is `evaluation.attempts`. Left out: the sandbox, which is the agent's.
"""

from __future__ import annotations

from typing import Literal

import polars as pl

from palaestra.errors import InputError
from palaestra.evaluation import attempts
from palaestra.evaluation.analyses import ANALYSES, Analysis
from palaestra.foundation.registry import load_object


@ANALYSES.register("attempt_chain")
def attempt_chain(
    agent: str,
    *,
    subtasks: int,
    most: int = 3,
    carry: Literal["best", "first"] = "best",
    episodes: int = 20,
    seed: int = 0,
) -> Analysis:
    """Returns a function () -> table per attempt: share of sub-tasks passed by then, mean best score, per attempt.

    `agent` is `module:function(seed)`, which returns work, judge and the first workspace of a chain (see
    `attempts.attempt_chain`); it is called for `episodes` seeds from `seed` on. `most` attempts at each of `subtasks`.
    """

    def answer() -> pl.DataFrame:
        if episodes < 1 or subtasks < 1:
            raise InputError(f"attempt_chain: episodes={episodes} and subtasks={subtasks} must be at least 1")
        make = load_object(agent, "agent")
        rows = []
        for number in range(episodes):
            work, judge, start = make(seed + number)
            chain = attempts.attempt_chain(work, judge, start, subtasks=subtasks, most=most, carry=carry)
            rows += [
                {"system": agent, "group": number, "episode": at, "turn": each.number - 1, "score.attempt": each.score}
                for at, result in enumerate(chain)
                for each in result.attempts
            ]
        turns = pl.DataFrame(rows, schema_overrides={"score.attempt": pl.Float64})
        spent = attempts.resource_efficiency(turns).drop("per_million")
        return attempts.pass_by_attempt(turns).join(spent, on="system", how="left")

    return answer
