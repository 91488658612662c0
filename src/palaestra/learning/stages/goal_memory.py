"""A memory of goals that nobody gave: what episodes happened to reach, and goals composed of what is mastered."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, nearest
from palaestra.learning.stages.own_context import POLICY, below, rescored
from palaestra.learning.stages.stage import Context, Stage, packed, stage, unpacked

if TYPE_CHECKING:
    from palaestra.play.plan import Plan

KEY = ("group", "episode")
TRIES = 8
"""Draws of subgoals for a goal that is not known yet."""


@stage
class goal_memory(Stage):
    """Stage: plans goals made of reached ones; adds the shortest way to each, sole rows of true `loss_mask` ([171]).

    LMA3 [171] (arXiv 2305.12487). Every goal that an episode reached labels the turns up to there (hindsight): they are
    learned from as if it had been asked for from the beginning. The memory keeps the shortest of them for each goal, of
    equal ones the newest. Episodes of the next iteration are for a new goal, composed of `k` goals of the memory, which
    are set one after the other before it; what follows is free. The new goal enters the memory if the column `held`,
    the checker, says that it was reached. Learn by `clone(column="loss_mask")`. Metrics: goals in the memory, new,
    imagined (episodes with a new goal), checked (of these), and length, mean turns of a way.

    The env makes episodes of goals: `seed_of(goals) -> seed`, `compose(goals) -> goal` and `asked(goal, step) -> text`,
    what is seen of a goal, as `native/workshop` does; the column `achieved` is its relabeller. Left out: goals written
    by a language model.

    Args:
        goals: "composed"; "known", one of the memory as it is; or "drawn", those that the env draws by itself.
        hindsight: Whether what was reached on the way labels turns, too, and not only the imagined goal.
        k: Number of subgoals.
        achieved: Column with the goals that the row's action reached, a list of texts.
        imagined: Column with the goal that the episode was for.
        held: Column that says whether that goal is reached after the row.

    Raises:
        InputError: An option is out of range; when it plans: the env has no goals.
    """

    adds = {"loss_mask": "the row is learned from", "source": "who made the row: policy, or memory"}
    notes = ()

    def __init__(
        self,
        *,
        goals: Literal["composed", "known", "drawn"] = "composed",
        hindsight: bool = True,
        k: int = 2,
        achieved: str = "achieved",
        imagined: str = "imagined",
        held: str = "held",
    ) -> None:
        if goals not in ("composed", "known", "drawn"):
            raise InputError(f"goal_memory: goals={goals!r}{nearest(goals, ('composed', 'known', 'drawn'))}")
        if k < 1:
            raise InputError(f"goal_memory: k={k} must be at least 1")
        self.goals, self.hindsight, self.k = goals, hindsight, k
        self.achieved, self.imagined, self.held = achieved, imagined, held
        self.needs = {*KEY, "turn", "policy", "observation", "action_ids", achieved, imagined, held}
        self.longest = 0
        """Turns of the longest episode so far."""
        self.memory: pl.DataFrame | None = None
        """Turns of the shortest way to each goal, `_goal`."""

    def plan(self, plan: Plan, context: Context) -> Plan:
        """Plan with a goal for each group; without stored goals, episodes without one."""
        if self.goals == "drawn":
            return plan
        env: Any = context.env()
        if not hasattr(env, "seed_of") or not hasattr(env, "compose"):
            raise InputError(f"env {type(env).__name__} has no seed_of(goals) and compose(goals), which make episodes")
        seeds = [env.seed_of(self._goals(env, context)) for _ in plan.numbers]
        return dataclasses.replace(plan, env_seeds=seeds)

    def _goals(self, env: Any, context: Context) -> list[str]:
        """Subgoals in the order in which they are set, and the goal that they make."""
        if self.memory is None:
            return []
        ways = self.memory.group_by("_goal", maintain_order=True).agg(pl.len(), pl.first("_met"))
        known = ways["_goal"].to_list()
        if self.goals == "known":
            return [known[int(context.rng.integers(len(known)))]]
        met = ways.filter("_met")
        if len(met) < self.k:
            return []
        names, sizes = met["_goal"].to_list(), met["len"].to_numpy()
        for _ in range(TRIES):
            at = context.rng.choice(len(names), self.k, replace=False, p=sizes / sizes.sum())
            if sizes[at].sum() < self.longest:  # time is left to look around
                parts = [names[each] for each in at]
                return [*parts, env.compose(parts)]
        return []

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The played rows, not to be learned from, with the stored ways below them."""
        before = 0 if self.memory is None else self.memory["_goal"].n_unique()
        frame = turns.frame.sort(*KEY, "turn")
        self.longest = max(self.longest, 1 + int(frame["turn"].max()))  # type: ignore[arg-type]
        found = self._reached(frame)
        self.memory = keep_shortest(self.memory, frame, found, context.env())
        wanted = frame.filter(pl.col(self.imagined).is_not_null())
        context.metrics |= {
            "imagined": float(wanted.select(KEY).n_unique()),
            "checked": float(wanted.filter(pl.col(self.held)).select(KEY).n_unique()),
        }
        own = turns.frame.with_columns(loss_mask=pl.lit(False), source=pl.lit(POLICY))
        if self.memory is None:
            return Turns(own)
        size = self.memory["_goal"].n_unique()
        context.metrics |= {"goals": float(size), "new": float(size - before), "length": len(self.memory) / size}
        made = rescored(self.memory.with_columns(_new=pl.lit(True)), context, "_new")
        number = pl.col("_goal").rank("dense").cast(own.schema["group"]) + int(own["group"].max())  # type: ignore[arg-type]
        made = made.with_columns(number.alias("group"), loss_mask=pl.lit(True), source=pl.lit("memory"))
        made = made.with_columns(pl.lit(0, own.schema["episode"]).alias("episode"))
        if "iteration" in own.columns:
            made = made.with_columns(iteration=pl.lit(own["iteration"][0], own.schema["iteration"]))
        return below(own, made)

    def _reached(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Goals that episodes reached, and the first turn at which they were: group, episode, _goal, _at."""
        asked = frame.filter(pl.col(self.held)).select(*KEY, _goal=self.imagined, _at="turn", _met=pl.lit(False))
        met = frame.select(*KEY, _goal=self.achieved, _at="turn", _met=pl.lit(True)).explode("_goal")
        rows = pl.concat([asked, met] if self.hindsight else [asked]).drop_nulls("_goal")
        return rows.group_by(*KEY, "_goal", maintain_order=True).agg(pl.min("_at"), pl.col("_met").any())

    def state_dict(self) -> dict[str, Any]:
        """State: the memory as the bytes of a Parquet file."""
        return {"memory": packed(self.memory), "longest": self.longest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.memory, self.longest = unpacked(state["memory"]), int(state["longest"])


def keep_shortest(
    memory: pl.DataFrame | None, frame: pl.DataFrame, found: pl.DataFrame, env: Any
) -> pl.DataFrame | None:
    """New memory: turns of the shortest way to each goal, old or `found`, seen as `env.asked` shows the goal.

    Of equally short ways the newest is kept; None where there is none.

    Args:
        memory: Turns with `_goal`.
        frame: Turns that were played, in order.
        found: Goals that were reached, `_goal`, in which episode and at which turn, `_at`.
        env: Says by `asked(goal, step)` what is seen of a goal.
    """
    best = found.sort("_at", maintain_order=True).unique("_goal", keep="first", maintain_order=True)
    if memory is not None:
        old = memory.group_by("_goal").agg(_old=pl.max("turn"))
        best = best.join(old, on="_goal", how="left", maintain_order="left")
        best = best.filter(pl.col("_old").is_null() | (pl.col("_at") <= pl.col("_old"))).drop("_old")
    if not len(best):
        return memory
    ways = best.join(frame, on=KEY, how="left", maintain_order="left").filter(pl.col("turn") <= pl.col("_at"))
    places = ways.select("_goal", "turn").unique(maintain_order=True)
    texts = [env.asked(goal, turn) for goal, turn in places.iter_rows()]
    ways = ways.join(places.with_columns(_text=pl.Series(texts)), on=["_goal", "turn"], maintain_order="left")
    ways = ways.with_columns(observation=pl.col("_text")).select("_goal", "_met", *frame.columns)
    kept = [] if memory is None else [memory.join(best, on="_goal", how="anti", maintain_order="left")]
    return pl.concat([*kept, ways], how="diagonal_relaxed")
