"""Rewards that are learned or designed around a run: steps of demonstrations, goals in objects, prices of limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import Team
from palaestra.agents.policy import Policy
from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.foundation.registry import load_object
from palaestra.learning.stages.asking import Adviser
from palaestra.learning.stages.novelty import matrix_of
from palaestra.learning.stages.stage import Context, Stage, stage
from palaestra.play.executors import Plan
from palaestra.rewards.combine.mix import dual_ascent
from palaestra.rewards.shaping.demonstrations import StepRewards
from palaestra.rewards.shaping.demonstrations import step_rewards as fit
from palaestra.rewards.shaping.goals import goal_similarities, word_cosine


@stage
class step_rewards(Stage):
    """Perceptual rewards [199] (arXiv 1612.06699): how much a turn looks like step 2, 3 … of a task shown a few times.

    Films are cut into steps, each step keeps its telling features (`rewards.step_rewards`), and every turn's features
    are scored against them: columns `step_2` … `step_n` in (0, 1]. Its reward is `escalate("step_2", "step_3")`.

    Args:
        guide: policy that shows how it is done, `episodes` times in the env, before the first iteration. films: a
            table of turns instead, one episode a film. steps: how many. features: list column of a turn's features.
        most, alpha, shortest, by_length: of the fit; see `rewards.step_rewards`. by_length is True here: without it,
            as published, short segments of noise are favoured.
    """

    adds = {"step_2": "how much the turn looks like the second step", "step_3": "like the third"}

    def __init__(
        self,
        guide: str | Policy | None = None,
        *,
        films: str | None = None,
        steps: int = 3,
        features: str = "features",
        episodes: int = 5,
        most: int = 32,
        alpha: float = 5.0,
        shortest: int = 2,
        by_length: bool = True,
    ) -> None:
        if (guide is None) == (films is None) or steps < 2 or episodes < 1:
            raise InputError(f"step_rewards: give guide or films; {steps=} at least 2, {episodes=} at least 1")
        self.guide, self.films, self.features, self.episodes = guide, films, features, episodes
        self.steps, self.how = steps, {"most": most, "alpha": alpha, "shortest": shortest, "by_length": by_length}
        self.asks = () if guide is None else Adviser(guide).asks
        self.needs = {features}
        self.adds = {f"step_{number}": f"how much the turn looks like step {number}" for number in range(2, steps + 1)}
        self.model: StepRewards | None = None

    def _shown(self, context: Context) -> Turns:
        if self.films is not None:
            return Turns.load(Path(self.films))
        assert self.guide is not None
        guide = Adviser(self.guide).begin(context)
        team = Team(dict.fromkeys(context.env().agents, guide))
        return context.executor.play(context.env, team, Plan(groups=self.episodes, seed=context.seed))

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with a score for each step."""
        if self.model is None:
            shown = self._shown(context)
            segments, frames = shown.segments("episode"), matrix_of(shown, self.features)
            order = np.arange(len(shown)) if segments.order is None else segments.order
            films = np.split(frames[order], segments.starts[1:])
            self.model = fit(films, self.steps, **self.how)  # type: ignore[arg-type]
        scores = self.model.score(matrix_of(turns, self.features))
        return turns.with_column(**dict(zip(self.adds, np.ascontiguousarray(scores.T), strict=True)))

    def state_dict(self) -> dict[str, Any]:
        """The fit."""
        model = self.model
        return {} if model is None else {"kept": model.kept, "mean": model.mean, "deviation": model.deviation}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.model = StepRewards(**{name: np.asarray(value) for name, value in state.items()}) if state else None


@stage
class goal_progress(Stage):
    """StateFactory's progress [52] (arXiv 2603.09400) with a similarity of texts of one's own: `goal_match` per row.

    objects, goal: columns of JSON objects, as `goal_score` reads them, which is this with word counts. similarity:
    `module:name` of a function of two texts, the cosine of an embedding model, say. A potential: `shape("progress")`.
    """

    adds = {"progress": "how much of the goal the state shows, in [0, 1]"}

    def __init__(
        self,
        objects: str = "objects",
        goal: str = "wanted",
        *,
        similarity: str | Callable[[str, str], float] = word_cosine,
        into: str = "progress",
    ) -> None:
        self.objects, self.goal, self.into = objects, goal, into
        self.similarity: Callable[[str, str], float] = (
            load_object(similarity, "goal_progress: similarity") if isinstance(similarity, str) else similarity
        )
        self.needs, self.adds = {objects, goal}, {into: type(self).adds["progress"]}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with the progress."""
        names = (self.objects, self.goal)
        both = turns.frame.select(pl.col(name).cast(pl.String).alias(str(at)) for at, name in enumerate(names))
        return turns.with_column(**{self.into: goal_similarities(both, names, self.similarity)})


@stage
class multipliers(Stage):
    """Prices of constraints by dual ascent ([41]): λ ← max(0, λ + rate · (mean cost - limit)) after each iteration.

    `price.NAME` is λ as it was when the iteration was played, on every row. Its reward is
    `lagrangian("reward", ("broken", "price.broken"))`.

    Args:
        limits: the highest mean cost per turn allowed, by column of costs. A demand (success at least .3) is a negative
            cost with a negative limit: of={"lost": "-col('success')"}, limits={"lost": -0.3}.
        of: a signal for a cost that is no column. rate, start: of λ.
    """

    adds = {"price.broken": "multiplier of the cost `broken`"}

    def __init__(
        self,
        limits: Mapping[str, float],
        *,
        rate: float = 0.05,
        start: float = 0.0,
        of: Mapping[str, str] | None = None,
    ) -> None:
        if not limits or not rate > 0 or start < 0:
            raise InputError(f"multipliers: needs limits by cost, {rate=} above 0 and {start=} at least 0")
        self.limits, self.rate = {name: float(limit) for name, limit in limits.items()}, rate
        self.costs = {name: parse((of or {}).get(name, f"col({name!r})")) for name in self.limits}
        self.prices = np.full(len(self.limits), float(start))
        self.needs = set().union(*(cost.needs() for cost in self.costs.values()))
        self.adds = {f"price.{name}": f"multiplier of the cost {name}" for name in self.limits}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with the prices; then they move. A cost that was told nowhere moves nothing."""
        columns = {
            f"price.{name}": np.full(len(turns), price) for name, price in zip(self.limits, self.prices, strict=True)
        }
        costs = []
        for (_name, cost), limit in zip(self.costs.items(), self.limits.values(), strict=True):
            values = np.asarray(cost.evaluate(turns), float)
            costs.append(float(np.nanmean(values)) if np.isfinite(values).any() else limit)
        self.prices = dual_ascent(self.prices, costs, list(self.limits.values()), rate=self.rate)
        return turns.with_column(**columns)

    def state_dict(self) -> dict[str, Any]:
        """The prices."""
        return {"prices": self.prices}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.prices = np.asarray(state["prices"])
