"""Shared rollouts: independent learners learn from each other's groups as if they had played them (SAPO [108])."""

from __future__ import annotations

import numpy as np
import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.signals import evaluate
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.stages.own_context import POLICY, rescored
from palaestra.learning.stages.stage import Context, Stage, stage


@stage
class share(Stage):
    """Stage: keeps each agent's first `local` groups, drops its others, adds copies of others' `external` best [108].

    SAPO [108] (arXiv 2509.08721). A group is what one agent played of a task. External ones are taken by their total
    reward, the largest first; none whose total is 0. What travels is text: the receiver reads and scores it as its own
    policy would have said it, so that its ratios are 1, and rewards it by its own `verify`. Groups that nobody here
    learns from leave the table. For agents with a policy each, of one kind, in games in which nobody answers another.
    `source` says "policy", or the agent who played the row. Its metrics count local and external groups, and refused.

    Args:
        local: groups of its own, the first of the iteration. external: of others'.
        verify: text of the signal that is the row's reward for whoever receives it; default: what the sender was paid.

    Raises:
        InputError: local or external is negative, or both are 0.
    """

    adds = {"source": "who played the row: policy, or the agent that it is from"}

    def __init__(self, local: int = 4, external: int = 4, *, verify: str | None = None) -> None:
        if local < 0 or external < 0 or not local + external:
            raise InputError(f"share: local={local} and external={external} must not be negative, and not both 0")
        self.local, self.external = local, external
        self.verify = None if verify is None else parse(verify, columns=(verify,))
        self.needs = {"group", "episode", "agent", "policy", "reward", "observation", "action", "action_ids"}
        self.needs |= set() if self.verify is None else self.verify.needs()

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table of own and received rows."""
        frame = turns.frame.with_columns(_who=pl.col("agent").cast(pl.String), source=pl.lit(POLICY))
        owner = dict(frame.select("_who", pl.col("policy").cast(pl.String)).unique().iter_rows())
        totals = frame.group_by("_who", "group").agg(pl.col("reward").sum()).sort("_who", "group")
        parts, counts = [], {"local": 0, "external": 0, "refused": 0}
        last = int(frame["group"].to_numpy().max()) + 1
        for agent, policy in sorted(owner.items()):
            own = totals.filter(pl.col("_who") == agent).head(self.local)
            others = totals.filter(pl.col("_who") != agent)
            taken = chosen_groups(others, self.external)
            counts["local"], counts["external"] = counts["local"] + len(own), counts["external"] + len(taken)
            counts["refused"] += int((others["reward"] <= 0).sum())
            kept = frame.join(own, on=["_who", "group"], how="semi", maintain_order="left")
            parts.append(kept.with_columns(_new=pl.lit(False)))
            numbered = taken.select("_who", "group", _number=last + pl.int_range(pl.len()))
            last += len(taken)
            received = frame.join(numbered, on=["_who", "group"], maintain_order="left").with_columns(
                source=pl.col("_who"),
                agent=pl.lit(agent).cast(frame.schema["agent"]),
                policy=pl.lit(policy).cast(frame.schema["policy"]),
                group=pl.col("_number").cast(frame.schema["group"]),
                _new=pl.lit(True),
            )
            parts.append(received.drop("_number"))
        made = rescored(pl.concat(parts), context, "_new")
        if self.verify is not None:
            (found,) = evaluate(Turns(made), self.verify)
            judged = pl.Series(np.asarray(found, float)).fill_nan(None)
            made = made.with_columns(reward=pl.when("_new").then(judged).otherwise("reward"))
        context.metrics |= {name: float(number) for name, number in counts.items()}
        return Turns(made.drop("_who", "_new"))


def chosen_groups(totals: pl.DataFrame, most: int) -> pl.DataFrame:
    """Table of the `most` rows with the largest `reward`, of a table with a row per group; only rewards above 0.

    Equal ones stay in the order of the table.
    As coded in the released trainer the border of 0 is looked for before sorting, so that zeros slip in.

    >>> chosen_groups(pl.DataFrame({"group": [0, 1, 2, 3], "reward": [3.0, 0.0, 0.0, 1.0]}), 3)["group"].to_list()
    [0, 3]
    """
    some = totals.filter(pl.col("reward") > 0)
    return some.sort("reward", descending=True, maintain_order=True).head(most)
