"""Every coalition of a team on the same tasks: what each seat is worth with its policy, and with another one in it.

CapaBench ([88], arXiv 2502.00510) fills each module's slot with a default model or the tested one, in all 2^n ways; the
table of what came of it is what `evaluation.teamwork.module_values` reads. Left out: more than 12 seats, where orders
are drawn (`credit.shapley_values` with a function that plays).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import polars as pl

from palaestra.agents.policy import Policy
from palaestra.agents.team import Team
from palaestra.credit.teams import EXACT
from palaestra.envs.protocol import EnvFactory
from palaestra.errors import InputError, nearest
from palaestra.play.executors import Executor, Local
from palaestra.play.plan import Plan


def play_coalitions(
    env: EnvFactory,
    team: Team,
    defaults: Mapping[str, Policy | Mapping[str, Policy]],
    *,
    groups: int,
    group_size: int = 1,
    seed: int = 0,
    executor: Executor | None = None,
    score: str = "success",
    which: Literal["all", "removed"] = "all",
) -> pl.DataFrame:
    """Play `groups` tasks by every coalition of a team, others by `defaults` {seat: policy}; DataFrame of all episodes.

    On an env factory.

    Columns: coalition (modules joined by `+`), task (reset seed), episode, `score`.

    team: whose seats are judged. defaults: seat -> who sits there when its policy is not in the coalition; or module ->
    {seat: policy} where a module is several seats. Seats that are not named keep theirs. which: all coalitions, or the
    whole team and it without each module. score: of `reward` the mean return of the agents that have one, as `trials`
    counts it; of another column the largest value of the episode. Every coalition plays the same tasks with the same
    draws, so that differences are paired.

    Raises:
        InputError: no module, more than 12, a seat that the team does not have, or a name with `+` in it.
    """
    others = {name: each if isinstance(each, Mapping) else {name: each} for name, each in defaults.items()}
    seats, whole = list(others), 2 ** len(others) - 1
    if not 1 <= len(seats) <= EXACT:
        raise InputError(f"play_coalitions: {len(seats)} seats; 1 to {EXACT} have a table of all coalitions")
    for seat in seats:
        if seat not in team or "+" in seat:
            raise InputError(
                f"play_coalitions: seat {seat!r} must be one of the team, without '+'{nearest(seat, team)}"
            )
    value, plays, parts = pl.col(score).cast(pl.Float64), executor or Local(), []
    worth = value.max()
    if score == "reward":
        earners = pl.col("agent").filter(value.is_not_null()).n_unique()
        worth = pl.when(value.count() > 0).then(value.sum() / earners).alias(score)
    plan = Plan(groups, group_size, seed, stream="eval")
    removed = [whole, *(whole - 2**bit for bit in range(len(seats)))]
    for place in removed if which == "removed" else range(whole + 1):
        own = [name for bit, name in enumerate(seats) if place >> bit & 1]
        instead = {seat: policy for name, each in others.items() if name not in own for seat, policy in each.items()}
        filled = Team({**team, **instead})
        frame = plays.play(env, filled, plan).frame
        episodes = frame.group_by("group", "episode", maintain_order=True).agg(
            worth, task=pl.col("seed").first() if "seed" in frame.columns else "group"
        )
        parts.append(episodes.select(pl.lit("+".join(own)).alias("coalition"), "task", "episode", score))
    return pl.concat(parts)
