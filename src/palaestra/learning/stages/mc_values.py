"""Values by playing on: SPO's Monte-Carlo values of segments [69], from restarts of what was played."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.errors import EnvError, InputError
from palaestra.learning.stages.stage import Context, Stage, stage
from palaestra.play.monte_carlo import Everybody, Restartable, mc_value


@stage
class mc_values(Stage):
    """Stage: column `value`, a Monte-Carlo estimate: mean return of `k` fresh continuations from each turn on.

    It is what the turn's agent earns from there on, with the current team.

    Every episode is played again from its seed by the actions in the table, so the env must be one that can be gone
    back to, and play the same when it is asked the same. A row is a segment of SPO (arXiv 2505.23564); its credit is
    `spo_chain()`, and `gae()` takes the column, too. What was played alike up to a turn is evaluated once.
    limit: of turns of a continuation.

    Raises:
        InputError: k or limit is below 1.
        EnvError: the env cannot be restarted, or plays another episode than the table tells.
    """

    needs = ("group", "episode", "turn", "agent", "action", "seed", "state")
    adds = {"value": "mean of what the agent earns from this turn on, played k times"}

    def __init__(self, k: int = 4, *, limit: int = 1000) -> None:
        if k < 1 or limit < 1:
            raise InputError(f"mc_values: k={k} and limit={limit} must be at least 1")
        self.k, self.limit = k, limit

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with `value`."""
        env = context.env()
        if not isinstance(env, Restartable):
            raise EnvError(f"mc_values: {type(env).__name__} cannot be restarted: it has no snapshot() and restore()")
        rows = turns.frame.select(pl.col("agent").cast(pl.String), "seed", "state", "action").rows()
        episodes = pl.DataFrame({"at": turns.codes("episode").ids, "turn": turns["turn"], "row": np.arange(len(rows))})
        found: dict[str, tuple[list[Any], list[Hashable], list[int]]] = {}
        for (_,), part in episodes.sort("at", "turn", "row").group_by("at", maintain_order=True):
            self._play_again(env, part, rows, found)
        values = np.full(len(turns), np.nan)
        for agent, (snapshots, keys, numbers) in found.items():
            values[numbers] = mc_value(
                context.env,
                snapshots,
                Everybody(context.team),
                context.rng,
                k=self.k,
                agent=agent,
                keys=keys,
                max_steps=self.limit,
            )
            context.spent.add(calls=self.k * len(set(keys)))
        return turns.with_column(value=values)

    def _play_again(self, env: Any, part: pl.DataFrame, rows: list[tuple[Any, ...]], found: dict[str, Any]) -> None:
        """Snapshots of the turns of one episode, by agent, with what was done before as their key."""
        seed = rows[part["row"][0]][1]
        seen, done = env.reset(seed), [str(seed)]
        for (turn,), now in part.group_by("turn", maintain_order=True):
            snapshot, acted = env.snapshot(), {}
            for row in now["row"].to_list():
                agent, _, state, said = rows[row]
                if agent not in seen or seen[agent].key() != state:
                    raise EnvError(
                        f"mc_values: turn {turn} of the episode of seed {seed} differs when played again; "
                        "an env must be the same for the same seed and actions"
                    )
                snapshots, keys, numbers = found.setdefault(agent, ([], [], []))
                snapshots.append(snapshot)
                keys.append(tuple(done))
                numbers.append(row)
                acted[agent] = said
            done = [*done, *(f"{agent}\x1f{said}" for agent, said in sorted(acted.items()))]
            if acted.keys() == seen.keys():
                seen = env.step(acted).observations
