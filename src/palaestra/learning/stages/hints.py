"""Hints: part of each group is played after the beginning of a right solution (ADHint [75]).

Which solution is a fact of the env; how much of it is shown follows from how hard the task was without. Left out: hints
that are only shown; here the policy's turns themselves are replaced, and it learns from them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.agents.policy import Learnable
from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.credit.repair import hint_prefix, hint_ratio
from palaestra.envs.prefixed import Prefixed
from palaestra.errors import InputError
from palaestra.learning.stages.probe import _scores
from palaestra.learning.stages.stage import Context, Stage, stage

if TYPE_CHECKING:
    from palaestra.envs.protocol import EnvFactory
    from palaestra.play.plan import Plan


@stage
class hints(Stage):
    """Stage: adds rows by playing a `share` of each group's episodes, first turns forced to the `reference` as hints.

    They begin with the first part of the task's `reference` (a column with a list of texts, one action a turn), as long
    as `hint_ratio(score, low=, high=)` says plus uniform noise in ±`noise`: the harder the task was without, the more.
    Forced turns carry the log-probabilities and entropies that the policy has for them now. Everything is played within
    the iteration's number of episodes. A task without a reference gets no hint.

    Its credit is `adhint()`.

    Raises:
        InputError: a number is out of range; or the reference is no action of the env.
    """

    adds = {"hinted": "the episode was played after a hint", "hint": "the turn was forced, part of the hint"}
    notes = ("_hinted",)

    def __init__(
        self,
        reference: str = "reference",
        *,
        share: float = 0.5,
        low: float = 0.1,
        high: float = 0.7,
        noise: float = 0.0,
        score: str = "success",
    ) -> None:
        if not 0 < share < 1 or not 0 <= low <= high <= 1 or noise < 0:
            raise InputError(f"hints: share={share} in (0, 1), 0 <= low={low} <= high={high} <= 1, noise={noise} >= 0")
        self.reference, self.share, self.low, self.high, self.noise = reference, share, low, high, noise
        self.score = parse(score)
        self.needs = {"group", "episode", "turn", "seed", reference} | self.score.needs()
        self._hinted: dict[int, int] = {}

    def plan(self, plan: Plan, context: Context) -> Plan:
        """Plan with fewer naive episodes: the hinted ones follow once it is known how these went."""
        plan, self._hinted = hold_back(plan, self.share, "hints")
        return plan

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The naive episodes, with the hinted ones of every group that has a reference below them."""
        never = np.zeros(len(turns), bool)
        naive = turns.with_column(hinted=never, hint=never)
        shown = hint_ratio(self.score, hinted="hinted", low=self.low, high=self.high)
        starts = (
            naive.with_column(_shown=shown)
            .frame.filter(pl.col(self.reference).is_not_null() & pl.col("_shown").is_not_nan())
            .group_by("group")
            .agg(pl.first("seed", self.reference, "_shown"), pl.max("episode"))
            .sort("group")
        )
        starts = starts.filter(pl.col("group").map_elements(lambda g: self._hinted.get(g, 0) > 0, pl.Boolean))
        if not len(starts):
            return naive
        ratios = np.clip(starts["_shown"] + context.rng.uniform(-self.noise, self.noise, len(starts)), 0, 1)
        forced = {
            int(seed): list(hint_prefix(reference, float(ratio)))
            for seed, reference, ratio in zip(starts["seed"], starts[self.reference].to_list(), ratios, strict=True)
        }
        hinted = play_on(context, starts, functools.partial(Prefixed, context.env, forced), self._hinted, turns)
        hinted = hinted.with_columns(pl.lit(True).alias("hinted"), pl.col("hint").fill_null(False))
        return Turns.concat([naive, Turns(rewritten(hinted, context, "hint", "hint_action", "hint_id"))])


def play_on(
    context: Context, starts: pl.DataFrame, env: EnvFactory, more: Mapping[int, int], turns: Turns
) -> pl.DataFrame:
    """Plays `more` {group: number} episodes of an env factory from table `starts` of seeds; rows, without failed ones.

    starts: group, reset seed and last episode of each; the further ones are numbered on.

    more: how many, by group. turns: what was played of them so far.

    Raises:
        InputError: not one of them could be played.
    """
    from palaestra.play.plan import Plan

    plan = Plan(
        groups=len(starts),
        group_size=[more[group] for group in starts["group"]],
        seed=int(context.rng.integers(2**31)),
        iteration=context.iteration,
        run=turns["run"][0] if "run" in turns.columns else None,
        env_seeds=[int(seed) for seed in starts["seed"]],
        version=context.learner.updates if context.learner else 0,
    )
    played = context.executor.play(env, context.team, plan)
    failed = played["error"].drop_nulls()
    if failed.len() and not played["error"].is_null().any():
        raise InputError(f"no further episode could be played ({failed[0]})")
    numbers = starts.select(pl.int_range(pl.len(), dtype=pl.Int32).alias("group"), _group="group", _last="episode")
    return (
        played.frame.filter(pl.col("error").is_null())
        .join(numbers, on="group", how="left", maintain_order="left")
        .with_columns(group=pl.col("_group"), episode=pl.col("episode") + pl.col("_last") + 1)
        .drop("_group", "_last")
    )


def hold_back(plan: Plan, share: float, who: str) -> tuple[Plan, dict[int, int]]:
    """Pair (plan with a `share` of each group's episodes left out, {group: number of episodes left out}).

    Raises:
        InputError: a group has nothing left, or nothing is held back.
    """
    sizes = {group: plan.size_of(group) for group in plan.numbers}
    more = {group: int(share * size + 0.5) for group, size in sizes.items()}
    left = [size - more[group] for group, size in sizes.items()]
    if min(left) < 1 or not max(more.values()):
        raise InputError(f"{who}: groups of {min(sizes.values())} leave none to play before or after")
    return dataclasses.replace(plan, group_size=left), more


def rewritten(frame: pl.DataFrame, context: Context, which: str, action: str, number: str) -> pl.DataFrame:
    """Table with `action` replaced by the column named `action` where column `which` is true, scored by policy now.

    Rows keep their order, and those of which `which` does not hold are unchanged.
    action, number: columns, which go, of its text and of its number, which policies without an `encode` need.

    Raises:
        InputError: such a policy has no number for an action.
    """
    frame = frame.with_row_index("_row")
    parts = [frame.filter(~pl.col(which))]
    for (name,), rows in frame.filter(which).group_by(pl.col("policy").cast(pl.String)):
        policy: Any = context.team.policies[str(name)]
        rows = rows.with_columns(action=pl.col(action))
        if isinstance(policy, Learnable):
            if hasattr(policy, "encode"):
                ids = [
                    policy.encode(seen or "", said)[1].tolist()
                    for seen, said in rows.select("observation", "action").iter_rows()
                ]
            elif rows[number].null_count():
                raise InputError(f"policy {name!r} takes one of numbered actions, and one that is put in has no number")
            else:
                ids = [[each] for each in rows[number]]
            rows = rows.with_columns(pl.Series("action_ids", ids, frame.schema["action_ids"]))
            for column, lists in zip(("logprobs", "entropies"), _scores(policy, rows), strict=True):
                rows = rows.with_columns(pl.Series(column, [each.tolist() for each in lists], frame.schema[column]))
            if "token_versions" in frame.columns:
                rows = rows.with_columns(pl.lit(None, frame.schema["token_versions"]).alias("token_versions"))
        parts.append(rows)
    return pl.concat(parts, how="vertical").sort("_row").drop("_row", action, number)
