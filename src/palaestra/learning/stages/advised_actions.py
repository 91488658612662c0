"""An adviser's action wherever the learner has been, to be cloned beside what the learner did (DAgger)."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from palaestra.agents.policy import Request
from palaestra.algebra.turns import SCHEMA, Turns
from palaestra.envs.facts import facts_of
from palaestra.errors import InputError
from palaestra.learning.stages.asking import Adviser
from palaestra.learning.stages.hints import rewritten
from palaestra.learning.stages.stage import Context, Stage, stage

KEY = ["group", "episode"]


@stage
class advised_actions(Stage):
    """Stage: adds rows with an adviser's actions in the states of the learner's turns (DAgger), in own groups.

    DAgger's relabelling (arXiv 1011.0686), and the imitation of a reference policy in VSC-RL's loss [192] (arXiv
    2502.07949): the states are the learner's, so learning from the rows pulls it to the adviser where it goes:
    `clone(0.3, column="advised")`. A `share` of the episodes is played again by their seeds and actions, so that the
    adviser sees all that the learner saw. A row has the log-probabilities of the learner; columns of other stages
    are missing on it. Stand it last. Its metrics count `episodes`, `advised` and `refused`, actions that are not legal.

    Args:
        adviser: A policy of the recipe without a seat.
        share: Of the episodes, from above 0 to 1.

    Raises:
        InputError: share is out of range; when it is called: no such adviser, or an env whose episode is another one
            when it is played again.
    """

    adds = {"advised": "the action is the adviser's"}

    def __init__(self, adviser: str, *, share: float = 0.25) -> None:
        if not 0 < share <= 1:
            raise InputError(f"advised_actions: share={share} is not in (0, 1]")
        self.adviser, self.share = Adviser(adviser), share
        self.needs = {*KEY, "turn", "agent", "policy", "action", "observation", "seed", "reward"}
        self.asks = self.adviser.asks

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with the adviser's rows below it."""
        frame = turns.frame.with_columns(advised=pl.lit(False))
        episodes = frame.select(KEY).unique(maintain_order=True)
        drawn = episodes[np.sort(context.rng.permutation(len(episodes))[: max(1, round(self.share * len(episodes)))])]
        rows = frame.join(drawn, on=KEY, how="semi", maintain_order="left")
        requests = [request for _, part in rows.group_by(KEY, maintain_order=True) for request in _again(part, context)]
        said = [each.action for each in self.adviser.begin(context).act(requests)]
        ids = [request.observation.index(action) for request, action in zip(requests, said, strict=True)]
        names = [
            request.observation.choices[number] if request.observation.choices and number is not None else str(action)
            for request, number, action in zip(requests, ids, said, strict=True)
        ]
        legal = [number is not None or r.observation.choices is None for number, r in zip(ids, requests, strict=True)]
        known = {*SCHEMA, *facts_of(context.env()), "advised"}
        blank = [pl.lit(None, dtype).alias(name) for name, dtype in rows.schema.items() if name not in known]
        last = int(frame["group"].to_numpy().max()) + 1
        made = rows.with_columns(*blank, pl.lit(True).alias("advised"), (pl.col("group") + last).alias("group"))
        made = made.with_columns(_action=pl.Series(names, dtype=pl.String), _id=pl.Series(ids, dtype=pl.Int64))
        made = made.filter(pl.Series(legal))
        context.metrics |= {
            "episodes": float(len(drawn)), "advised": float(len(made)), "refused": float(len(rows) - len(made))
        }  # fmt: skip
        made = rewritten(made, context, "advised", "_action", "_id")
        return Turns(pl.concat([frame, made.select(frame.columns)], how="vertical_relaxed"))

    def state_dict(self) -> dict[str, Any]:
        """State of the adviser: amounts spent and answers."""
        return self.adviser.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.adviser.load_state_dict(state)


def _again(part: pl.DataFrame, context: Context) -> list[Request]:
    """What was seen before each row of an episode, by playing it again."""
    env = context.env()
    seen, found = env.reset(int(part["seed"][0])), []
    streams = np.random.default_rng(context.rng.integers(2**63))
    for _, rows in part.group_by("turn", maintain_order=True):
        did = dict(rows.select(pl.col("agent").cast(pl.String), "action").iter_rows())
        if did.keys() != seen.keys():
            raise InputError(
                f"an episode of seed {part['seed'][0]} is another one when it is played again: {sorted(did)} acted, "
                f"now {sorted(seen)} would; advised_actions needs an env that its seed and its actions determine"
            )
        found += [Request(seen[agent], agent, streams) for agent in did]
        seen = env.step(did).observations
    return found
