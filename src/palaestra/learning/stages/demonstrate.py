"""Demonstrations: episodes of somebody else in the learner's seat, learned from but for the turns that were wrong."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.selection import conditions, selection
from palaestra.algebra.signals import evaluate
from palaestra.algebra.turns import Turns
from palaestra.envs.helped import Numbered
from palaestra.errors import InputError, nearest
from palaestra.learning.stages.own_context import POLICY, below, rescored
from palaestra.learning.stages.stage import Context, Stage, stage

if TYPE_CHECKING:
    from palaestra.play.plan import Plan


@stage
class demonstrate(Stage):
    """Stage: an adviser plays a `share` of each group's episodes; `loss_mask` is true on its turns right by `verdict`.

    AgentRefine [64] (arXiv 2501.01702): `loss_mask` is true on the adviser's turns that `verdict` finds right, in
    episodes that meet `keep`; wrong turns stay in the table, and in what later turns saw, and are not learned from. So
    is what the learner played itself. Learn by `clone(column="loss_mask")`. Rows say `source`, "policy" or the
    adviser's name, and are scored as the learner would have said them. Turns that are not legal are no demonstration:
    their episodes are left out. Its metrics count episodes, kept, and dropped.

    Args:
        adviser: a policy of the recipe without a seat. verdict: text of the signal that is 1 on right turns.
        keep: text of the signal that is 1 on episodes worth learning from, e.g. 'total(bad) > 0': with an error in it.

    Raises:
        InputError: share is not in (0, 1); when it is called: no such adviser.
    """

    adds = {"loss_mask": "the row is learned from", "source": "who chose the action: policy, or the adviser"}
    notes = ("_more",)

    def __init__(self, adviser: str, *, share: float = 0.5, verdict: str = "valid", keep: str | None = None) -> None:
        if not 0 < share < 1:
            raise InputError(f"demonstrate: share={share} is not in (0, 1)")
        self.adviser, self.share = adviser, share
        self.verdict = parse(verdict, columns=(verdict,))
        self.keep = None if keep is None else parse(keep, columns=(keep,))
        self.needs = {"group", "episode", "turn", "agent", "policy", "action", "observation"} | self.verdict.needs()
        self.needs |= set() if self.keep is None else self.keep.needs()
        self.asks = (adviser,)
        self._more: dict[int, int] = {}

    def plan(self, plan: Plan, context: Context) -> Plan:
        """Plan with fewer episodes of the learner's own."""
        from palaestra.learning.stages.hints import hold_back

        plan, self._more = hold_back(plan, self.share, "demonstrate")
        return plan

    def taught(self, context: Context) -> tuple[Context, str]:
        """The context with the teacher in every seat, and the teacher's name."""
        return advised(context, self.adviser), self.adviser

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The learner's rows, with the adviser's rows below them."""
        from palaestra.learning.stages.hints import play_on

        taught, who = self.taught(context)
        starts = turns.frame.group_by("group").agg(pl.first("seed"), pl.max("episode")).sort("group")
        played = play_on(taught, starts, functools.partial(Numbered, context.env), self._more, turns)
        played = seated(played, context, who).with_columns(_new=pl.lit(True))
        legal = pl.col("valid").fill_null(True).all().over("group", "episode")
        shown = Turns(played.filter(legal))
        made = rescored(shown.frame, context, "_new", number="choice_id").drop("_new")
        (right,) = evaluate(Turns(made), self.verdict)
        worth = np.ones(len(made), bool)
        counts = {"units": made.select("group", "episode").n_unique()}
        if self.keep is not None:
            found = selection(Turns(made), conditions(self.keep, between=(1, 1)))
            worth, counts = found.kept, found.counts
        made = made.with_columns(loss_mask=pl.Series((np.asarray(right, float) == 1) & worth))
        context.metrics |= {"episodes": float(counts["units"]), "kept": float(counts.get("kept", counts["units"]))}
        context.metrics["illegal"] = float(played.filter(~legal).select("group", "episode").n_unique())
        own = turns.frame.with_columns(loss_mask=pl.lit(False), source=pl.lit(POLICY))
        return below(own, made)


def advised(context: Context, adviser: str) -> Context:
    """Copy of a stage's context with the named adviser in every seat of the team.

    Raises:
        InputError: no such adviser.
    """
    from palaestra.agents import Team

    if adviser not in context.advisers:
        raise InputError(f"no adviser {adviser!r} among the policies{nearest(adviser, context.advisers)}")
    return dataclasses.replace(context, team=Team(dict.fromkeys(dict(context.team.items()), context.advisers[adviser])))


def seated(played: pl.DataFrame, context: Context, adviser: str) -> pl.DataFrame:
    """Table of turns that an adviser `played`, policies set to those of the context's team, `source` to the adviser."""
    names = {agent: policy.name for agent, policy in context.team.items()}
    seat = pl.col("agent").cast(pl.String).replace_strict(names).cast(played.schema["policy"])
    return played.with_columns(policy=seat, source=pl.lit(adviser))
