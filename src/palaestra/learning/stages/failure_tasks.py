"""Tasks made of those that failed: in phases, each near a failure of the last one, neither hopeless nor mastered."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.returns import episode_score
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.outcome_critic import OutcomeCritic
from palaestra.learning.stages.stage import Context, Stage, stage

if TYPE_CHECKING:
    from palaestra.play.executors import Plan

KEY = ("group", "episode")


@stage
class failure_tasks(Stage):
    """Stage: curriculum whose phases play tasks that the env's `vary` makes from failures of the last (WebRL [179]).

    Source: arXiv 2411.02337.

    A task is a reset seed; the env makes one of another, `vary(seed, rng) -> seed`, as `native/phrases` does, and may
    say whether it can be done, `feasible(seed) -> bool`. Candidates are kept if either head of a critic, fitted to the
    episodes before, gives the task's first observation a chance of success in [low, high]. The first phase plays what
    the env draws, and so does one that finds no task. Its metrics count failed tasks, candidates, refused by the critic
    and by the env, and tasks of the phase.

    Args:
        every: iterations of a phase. number: tasks of a phase, at most. draws: candidates for each of them.
        share: of the groups that play them, at most; the others play what the env draws, and may fail at that, too.
        low, high: chances of success by the critic; [0, 1] keeps all.
        memory: episodes that the critic is fitted to, the newest. score: text of the signal that says how an episode
            went; it failed at 0 and below.

    Raises:
        InputError: a number is out of range; when it plans: the env has no `vary`.
    """

    needs: tuple[str, ...] = ("group", "episode", "turn", "seed", "observation")
    adds = {
        "made_from": "reset seed of the failed task that the task was made from; null: drawn by the env",
        "first_value": "chance of success at the task's first observation, mean of the critic's heads, as of the phase",
    }

    def __init__(
        self,
        *,
        every: int = 10,
        number: int = 64,
        draws: int = 8,
        share: float = 0.75,
        low: float = 0.05,
        high: float = 0.75,
        memory: int = 2000,
        score: str = "reward",
    ) -> None:
        if min(every, number, draws, memory) < 1 or not 0 <= low <= high <= 1 or not 0 < share <= 1:
            raise InputError(
                f"failure_tasks: every={every}, number={number}, draws={draws} and memory={memory} of at least 1, "
                f"0 <= low={low} <= high={high} <= 1, share={share} in (0, 1]"
            )
        self.every, self.number, self.draws, self.share = every, number, draws, share
        self.band, self.memory = (low, high), memory
        self.score = parse(score, columns=(score,))
        self.needs = (*type(self).needs, *sorted(self.score.needs()))
        self.critic = OutcomeCritic()
        self.parents: dict[int, int] = {}
        """Tasks of this phase, each with the failed task that it was made from."""
        self.failed: list[int] = []
        self._texts: list[str] = []
        self._went: list[float] = []

    def plan(self, plan: Plan, context: Context) -> Plan:
        """Plan with the phase's tasks in the first groups, none twice; at its beginning they are made."""
        if plan.iteration > self.every and (plan.iteration - 1) % self.every == 0:
            self._renew(plan, context)
        if not self.parents:
            return plan
        groups = len(plan.numbers)
        drawn = context.rng.permutation(list(self.parents))[: round(self.share * groups)].tolist()
        fresh = list(plan.env_seeds or [None] * groups)
        return dataclasses.replace(plan, env_seeds=[*drawn, *fresh[len(drawn) :]])

    def _renew(self, plan: Plan, context: Context) -> None:
        from palaestra.play.plan import Plan

        env: Any = context.env()
        if not hasattr(env, "vary"):
            raise InputError(f"env {type(env).__name__} has no vary(seed, rng) -> seed, which makes a task of another")
        made: dict[int, int] = {}
        for parent in context.rng.choice(self.failed, self.number * self.draws).tolist() if self.failed else ():
            child = env.vary(parent, context.rng)
            if child != parent:
                made.setdefault(child, parent)
        context.metrics |= {"failed": float(len(self.failed)), "candidates": float(len(made))}
        self.failed, self.parents = [], {}
        if not made:
            return
        self.critic.fit(self._texts, np.clip(self._went, 0, 1), context.rng)
        seeds = list(made)
        asked = Plan(groups=len(seeds), seed=plan.seed, iteration=plan.iteration, env_seeds=seeds)
        starts = context.executor.starts(context.env, asked)
        value = self.critic.predict(["" if start is None else start.text for start in starts])
        low, high = self.band
        fit = ((value >= low) & (value <= high)).any(axis=1) & np.array([start is not None for start in starts])
        hopeful = [seed for seed, good in zip(seeds, fit, strict=True) if good]
        can = [seed for seed in hopeful if not hasattr(env, "feasible") or env.feasible(seed)]
        self.parents = {seed: made[seed] for seed in can[: self.number]}
        context.metrics |= {
            "refused_by_critic": float(len(seeds) - len(hopeful)),
            "infeasible": float(len(hopeful) - len(can)),
            "tasks": float(len(self.parents)),
        }

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with both columns; stores how its episodes went."""
        frame = turns.with_column(_went=episode_score(self.score)).frame
        first = frame.sort(*KEY, "turn").group_by(*KEY, maintain_order=True).agg(
            pl.col("observation", "seed", "_went").first()
        )  # fmt: skip
        texts = first["observation"].fill_null("").to_list()
        value = first.select(*KEY, first_value=pl.Series(self.critic.predict(texts).mean(axis=1)))
        known = first.filter(pl.col("_went").is_not_nan() & pl.col("_went").is_not_null())
        best = known.group_by("seed", maintain_order=True).agg(pl.col("_went").max()).filter(pl.col("_went") <= 0)
        self.failed = list(dict.fromkeys([*self.failed, *best["seed"].to_list()]))
        self._texts = [*self._texts, *known["observation"].fill_null("")][-self.memory :]
        self._went = [*self._went, *known["_went"]][-self.memory :]
        parents = pl.DataFrame(
            {"seed": list(self.parents), "made_from": list(self.parents.values())},
            {"seed": turns.frame.schema["seed"], "made_from": pl.UInt64},
        )
        told = turns.frame.join(parents, on="seed", how="left", maintain_order="left")
        return Turns(told.join(value, on=KEY, how="left", maintain_order="left"))

    def state_dict(self) -> dict[str, Any]:
        """State: the phase's tasks, failures, the critic's data and coefficients."""
        return {
            "parents": list(self.parents.items()),
            "failed": list(self.failed),
            "texts": list(self._texts),
            "went": np.array(self._went, float),
            "critic": self.critic.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.parents = {int(seed): int(parent) for seed, parent in state["parents"]}
        self.failed = [int(seed) for seed in state["failed"]]
        self._texts, self._went = list(state["texts"]), np.asarray(state["went"]).tolist()
        self.critic.load_state_dict(state["critic"])
