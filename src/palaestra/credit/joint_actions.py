"""Joint actions of a team's turns, and ReAd's critic of logged ones ([56], arXiv 2405.14314)."""

from __future__ import annotations

import numpy as np
import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.returns import return_to_go
from palaestra.algebra.signals import total
from palaestra.algebra.turns import Turns
from palaestra.credit.critics import PrefixCritic


def team_plays(turns: Turns, *, by_name: bool = False) -> list[tuple[list[int], str, list[str]]]:
    """List, one per (episode, turn) of `Turns`: (row numbers, text of what its agents saw, list of what each did).

    by_name: the agents of a turn in the order of their names, in which credit walks a turn; else in that of rows.
    """
    rows = pl.DataFrame(
        {
            "at": turns.codes("episode", "turn").ids,
            "row": np.arange(len(turns)),
            "agent": turns["agent"].cast(pl.String),
            "state": turns["state"].cast(pl.String),
            "action": turns["action"].fill_null(""),
        }
    )
    seen = pl.concat_str(["agent", "state"], separator=" ").sort().str.join("\x1f").alias("seen")
    did = pl.concat_str(["agent", "action"], separator=" ").alias("did")
    each = [column.sort_by("agent", maintain_order=True) if by_name else column for column in (pl.col("row"), did)]
    found = rows.group_by("at", maintain_order=True).agg(each[0], seen, each[1])
    return [play[1:] for play in found.iter_rows()]


def fitted_critic(turns: Turns, *, reward: str = "reward", gamma: float = 1.0) -> PrefixCritic:
    """ReAd's `PrefixCritic` fitted to the play in `Turns`: of the team's return, its agents in the order of names."""
    target = total(return_to_go(parse(reward), gamma=gamma), over=("episode", "turn"))
    goal, plays = np.asarray(target.evaluate(turns), float), team_plays(turns, by_name=True)
    known = [(s, j, goal[o[0]]) for o, s, j in plays if goal[o[0]] == goal[o[0]]]
    return PrefixCritic().fit([s for s, _, _ in known], [j for _, j, _ in known], [value for _, _, value in known])
