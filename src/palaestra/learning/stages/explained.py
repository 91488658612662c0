"""Reasons for actions that nobody thought of: written after the act, put before it, learned with it (ActRe [146])."""

from __future__ import annotations

import polars as pl

from palaestra.agents.policy import Policy, Request
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError
from palaestra.learning.stages.hints import rewritten
from palaestra.learning.stages.stage import Context
from palaestra.teams.thoughts import with_thought

ASK = "{seen}\n\nI do: {action}\nWhy?"
"""Question to whoever writes the reason."""


def explained(made: pl.DataFrame, writer: Policy, context: Context, *, source: str = "injected") -> pl.DataFrame:
    """Table `made` with a reason by policy `writer` put before the action of each `source` row, which is scored again.

    Returns the table; the score is that of the row's own policy for reason and action.
    A³T's ActRe (arXiv 2403.14589): `writer` reads what was seen and the action that was done, and says a reason. The
    row's action becomes `<think>REASON</think>ACTION`; an empty answer is no reason. Policies that take one of numbered
    actions need an env whose choices have reasons, `palaestra.teams.thoughts`, the same ones in every turn.

    Args:
        made: Turns with observation, agent, action, source, seed and policy.
        writer: Policy that is asked.
        context: Of the stage that asks.
        source: Rows that get a reason.

    Raises:
        InputError: The env has choices, and the action with its reason is none of them.
    """
    whole, here = made.with_row_index("_at"), pl.col("source") == source
    put = whole.filter(here)
    rows = put.select("observation", pl.col("agent").cast(pl.String), "action").rows()
    asked = [Request(Observation(ASK.format(seen=seen, action=act)), agent, context.rng) for seen, agent, act in rows]
    reasons = [str(each.action).strip() for each in (writer.act(asked) if asked else [])]
    said = [with_thought(reason, act) for reason, (_, _, act) in zip(reasons, rows, strict=True)]
    first = context.env().reset(int(made["seed"][0]))
    choices = {agent: list(seen.choices) for agent, seen in first.items() if seen.choices}
    ids: list[int | None] = []
    for (_, agent, _), text in zip(rows, said, strict=True):
        if agent in choices and text not in choices[agent]:
            raise InputError(f"{text!r} is no choice of this env; env.workflow: thoughts([…]) gives choices reasons")
        ids.append(choices[agent].index(text) if agent in choices else None)
    put = put.with_columns(
        _put=pl.lit(True), _said=pl.Series(said, dtype=pl.String), _id=pl.Series(ids, dtype=pl.Int64)
    )
    if "rationale" in put.columns:
        put = put.with_columns(rationale=pl.Series(reasons, dtype=pl.String))
    put = rewritten(put, context, "_put", "_said", "_id").drop("_put")
    return pl.concat([whole.filter(~here), put.select(whole.columns)]).sort("_at").drop("_at")
