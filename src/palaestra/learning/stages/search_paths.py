"""`search_paths`: paths of a search tree as episodes, so that good and bad ones part from a common beginning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.envs.helped import Help, HelpedEpisode
from palaestra.errors import InputError
from palaestra.judges.search import TreeSearch
from palaestra.learning.stages.guidance import ADDS, play_helped, with_helped
from palaestra.learning.stages.hints import hold_back
from palaestra.learning.stages.stage import Context, Stage, stage

if TYPE_CHECKING:
    from palaestra.play.plan import Plan


@stage
class search_paths(Stage):
    """Stage: adds rows: held-back attempts of each group are the rollouts of one search tree from the group's start.

    Agent-R's search [165] (arXiv 2501.11425): an action that was not tried comes first, else the edge of the largest
    q + c·√(ln N / n) behind which something is untried; the policy plays on to the end, and an edge is worth the mean
    return of what was met behind it. Every rollout is played again as an episode of its own; its rows say `source`
    "search" and are scored as their policy would have said them. As many episodes are played as without the stage, and
    as many again within the search. The env has one agent, can snapshot and restore, and leaves nothing to chance after
    its reset; else the episode ends elsewhere than the rollout did.

    Args:
        share: Of each group that is held back.
        c: Weight of what was rarely tried.
        horizon: Most actions of a rollout; the policy goes on in the episode.

    Raises:
        InputError: A number is out of range.
    """

    adds = ADDS
    notes = ("_more",)

    def __init__(self, *, share: float = 0.5, c: float = 1.0, horizon: int = 100) -> None:
        if not 0 < share < 1 or not c >= 0 or horizon < 1:
            raise InputError(f"search_paths: {share=} in (0, 1), {c=} at least 0, {horizon=} at least 1 are needed")
        self.share, self.c, self.horizon = share, c, horizon
        self.needs = {"group", "episode", "turn", "seed", "action", "policy"}
        self._more: dict[int, int] = {}

    def plan(self, plan: Plan, context: Context) -> Plan:
        """Plan with fewer first attempts."""
        plan, self._more = hold_back(plan, self.share, "search_paths")
        return plan

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The first attempts, with the paths of the trees below them."""
        begins = turns.frame.group_by("group", maintain_order=True).agg(
            pl.col("seed").first(), pl.col("agent").cast(pl.String).first()
        )
        wanted, kinds = [], 0
        for group, seed, agent in begins.iter_rows():
            search = TreeSearch(
                "ucb", "mean", rollouts=max(self._more.get(group, 0), 1), horizon=self.horizon, c=self.c, gamma=1.0
            )
            policy = context.team.for_agent(agent)
            paths = search(context.env, policy, seed=int(seed), rng=context.rng).paths[: self._more.get(group, 0)]
            kinds += len(set(paths))
            for path in paths:
                wanted.append((group, HelpedEpisode(int(seed), {at: Help(action=act) for at, act in enumerate(path)})))
        made = play_helped(context, turns, wanted, source="search") if wanted else None
        context.metrics |= {"paths": float(len(wanted)), "distinct": float(kinds)}
        return with_helped(turns, made)
