"""Windows: every slot plays a fixed number of turns per iteration, and what was cut goes on in the next one.

T-PPO's successive batching ([59], arXiv 2506.15050). Left out: checkpoints of what is under way; a resumed run begins
its slots anew.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.envs.facts import facts_of
from palaestra.envs.protocol import Action, Env, EnvFactory, Observation, StepResult
from palaestra.errors import EnvError, InputError
from palaestra.play.engine import Seats
from palaestra.play.executors import EXECUTORS, Local
from palaestra.play.plan import Plan

History = Sequence[Mapping[str, Action]]


@dataclasses.dataclass(frozen=True)
class _Held:
    """An episode that was cut: its reset seed, what was done in it, and its rows."""

    seed: int
    history: tuple[dict[str, Action], ...]
    rows: pl.DataFrame


class Resumed:
    """Env wrapper (of an env factory): a reset with seed s first replays the agents' recorded actions `histories[s]`.

    facts: those of the env.

    Raises:
        EnvError: when it is played, the env does not play as it did.
    """

    def __init__(self, env: EnvFactory, histories: Mapping[int, History]) -> None:
        self.env: Env = env()
        self.agents, self.task = self.env.agents, ""
        self.facts: dict[str, Any] = dict(facts_of(self.env))
        self.histories = histories

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Replay the recorded actions, and return the observations that follow."""
        seen = self.env.reset(seed)
        self.task = self.env.task
        for actions in self.histories.get(seed, ()):
            if actions.keys() != seen.keys():
                raise EnvError(f"the episode of seed {seed} differs when played again; an env must be the same for it")
            seen = self.env.step(actions).observations
        return seen

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the actions in the env."""
        return self.env.step(actions)


@EXECUTORS.register("windows")
class Windows(Local):
    """Executor like `local` that plays only `turns` turns of each episode per training iteration and resumes later.

    Slots whose episode is over begin a new one.

    A window that is cut has `truncated`; the next iteration goes on with it in the same slot, with today's policy, so
    nothing waits for the longest episode. When an episode is over, its earlier rows come along once more, marked
    `past`: a critic may learn from the whole, the policy has learned from them. Envs must be the same for the same seed
    and actions. Evaluations, and play before training (iteration 0), are of whole episodes.

    Its credit is `where(~col("past"), tppo())`, its critic `critic(finished=True)`. The other options are of `local`.

    Raises:
        InputError: turns is below 1, or an option of `local` is out of range.
    """

    adds = {"past": "the row was played, and learned from, in an earlier iteration"}

    def __init__(
        self, turns: int, *, concurrency: int = 256, timeout: float | None = 60.0, max_turns: int = 1000
    ) -> None:
        if turns < 1:
            raise InputError(f"windows: turns={turns}, expected at least 1")
        super().__init__(concurrency, timeout, 0, max_turns)
        self.window = Local(concurrency, timeout, 0, turns)
        self.held: dict[int, _Held] = {}

    def play(
        self, env: EnvFactory, team: Seats, plan: Plan, *, progress: bool = False, sink: str | Path | None = None
    ) -> Turns:
        """Play a window of each slot in an iteration of training; whole episodes otherwise."""
        if plan.stream != "train" or plan.iteration == 0 or sink is not None:
            return super().play(env, team, plan, progress=progress, sink=sink)
        slots = [(group, episode) for group in plan.numbers for episode in range(plan.size_of(group))]
        going = {slot: held for slot, held in self.held.items() if slot < len(slots)}
        fresh = dataclasses.replace(
            plan,
            groups=len(slots),
            group_size=1,
            env_seeds=[going[slot].seed if slot in going else None for slot in range(len(slots))],
        )
        histories = {held.seed: held.history for held in going.values()}
        played = self.window.play(functools.partial(Resumed, env, histories), team, fresh, progress=progress).frame
        parts, self.held = [], {}
        for (slot,), rows in played.partition_by("group", as_dict=True, maintain_order=True).items():
            before = going.get(int(slot))
            parts.append(self._settled(int(slot), rows, before, slots[int(slot)]))
        return Turns(pl.concat(parts, how="diagonal_relaxed", rechunk=True))

    def _settled(self, slot: int, rows: pl.DataFrame, before: _Held | None, place: tuple[int, int]) -> pl.DataFrame:
        """The window's rows under the plan's numbers; if the episode is over, after those of its earlier windows."""
        done = len(before.history) if before else 0
        group, episode = (pl.lit(number, pl.Int32) for number in place)
        rows = rows.with_columns(
            group=group, episode=episode, turn=pl.col("turn") + pl.lit(done, pl.Int32), past=pl.lit(False)
        )
        earlier = before.rows if before else rows.clear()
        if rows["truncated"][-1] and rows["error"].null_count() == len(rows):
            acted = rows.select("turn", pl.col("agent").cast(pl.String), "action").partition_by(
                "turn", maintain_order=True
            )
            history = tuple(dict(zip(each["agent"], each["action"], strict=True)) for each in acted)
            held = (before.history if before else ()) + history
            whole = pl.concat([earlier, rows], how="diagonal_relaxed")
            self.held[slot] = _Held(int(rows["seed"][0]), held, whole)
            return rows
        again = {name: pl.lit(rows[name][0], rows.schema[name]) for name in ("iteration", "policy_version")}
        ended = {name: pl.lit(rows[name][-1], rows.schema[name]) for name in ("truncated", "terminated")}
        past = earlier.with_columns(group=group, episode=episode, past=pl.lit(True), **again, **ended)
        return pl.concat([past, rows], how="diagonal_relaxed")
