"""Dynamic sampling: groups from which nothing can be learned are replaced by further ones, and what that costs is told.

A group whose episodes all score the same has no advantage. Left out: groups that are kept for later iterations.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.samples import exceeds
from palaestra.algebra.signals import evaluate, mean
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.iteration_metrics import split
from palaestra.learning.stages.stage import REWARD, Context, Stage, stage
from palaestra.play.plan import Plan

EPISODE = ("group", "episode")


@stage
class dynamic_sampling(Stage):
    """Stage: drops groups whose episodes all score alike, and plays as many other groups in their place (DAPO).

    DAPO (arXiv 2503.14476, eq. 11: 0 < number of right answers < G). Up to `rounds` times as many groups are played as
    are missing; then the iteration learns from what there is, or from what was played first if no group differs. Stand
    it first: rows that it adds have not been through the stages before it.

    Its metrics: groups (planned), kept, uninformative (of all that were played), score (mean of all that were played;
    reward and success of the iteration are those of the kept ones), rounds, and what it costs: extra_episodes,
    extra_share (of the planned episodes), calls, tokens and cost.

    Args:
        score: Text of the signal that says how an episode went, not the reward, which is computed later.
        rounds: Most times that further groups are played.
        spread: Least difference between the best and the worst episode of a group, above which it is kept.

    Raises:
        InputError: rounds or spread are below 0, score reads the reward, or it is missing everywhere; or a stage
            before it added groups.
    """

    step = "filter"

    notes = ("_groups", "_size")

    def __init__(self, score: str = "success", *, rounds: int = 3, spread: float = 0.0) -> None:
        if rounds < 0 or spread < 0:
            raise InputError(f"dynamic_sampling: rounds={rounds} and spread={spread}, expected at least 0")
        self.text, self.score = score, parse(score, columns=(score,))
        self.needs = {*EPISODE, *self.score.needs()}
        if REWARD in self.needs:
            raise InputError(
                "dynamic_sampling: score reads 'reward', which further episodes do not have yet: name what it is"
                " computed from, such as success"
            )
        self.rounds, self.spread = rounds, spread
        self._groups = self._size = 0

    def plan(self, plan: Plan, context: Context) -> Plan:
        """The plan unchanged; the number of groups and their size are stored."""
        if not isinstance(plan.group_size, int):
            raise InputError("dynamic_sampling: groups of several sizes; leave out the stage that gives them")
        self._groups, self._size = len(plan.numbers), plan.group_size
        return plan

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The groups whose scores differ, those of the plan first."""
        if int(turns["group"].to_numpy().max()) >= self._groups:
            raise InputError("groups that were not planned; stand it before the stage that adds them")
        scores = [self._of_episodes(turns)]
        if scores[0]["score"].is_null().all():
            raise InputError(f"score {self.text!r} is missing on every episode: name a column that is not")
        kept, played = [self._informative(turns, scores[0])], self._groups
        rounds = 0
        while (missing := self._groups - sum(part["group"].n_unique() for part in kept)) and rounds < self.rounds:
            more, _ = split(self._play(context, missing, turns, played), self._size, drop_incomplete=True)
            rounds, played = rounds + 1, played + missing
            if len(more):
                scores.append(self._of_episodes(more))
                kept.append(self._informative(more, scores[-1]))
        found, extra = pl.concat(kept, how="diagonal_relaxed"), (played - self._groups) * self._size
        number = found["group"].n_unique()
        context.metrics |= {
            "groups": float(self._groups),
            "kept": float(number),
            "uninformative": float(played - number),
            "rounds": float(rounds),
            "extra_episodes": float(extra),
            "extra_share": extra / self._groups / self._size,
            "score": float(pl.concat(scores)["score"].mean()),  # type: ignore[arg-type]
        }
        return Turns(found) if number else turns

    def _of_episodes(self, turns: Turns) -> pl.DataFrame:
        """Score of each episode."""
        (found,) = evaluate(turns, mean(self.score, over=EPISODE))
        scored = turns.frame.select(*EPISODE, score=pl.Series(np.asarray(found, float)).fill_nan(None))
        return scored.group_by(EPISODE, maintain_order=True).agg(pl.col("score").first())

    def _informative(self, turns: Turns, scores: pl.DataFrame) -> pl.DataFrame:
        """Rows of the groups whose episodes differ."""
        ends = scores.group_by("group").agg(low=pl.col("score").min(), high=pl.col("score").max())
        low, high = (ends[name].to_numpy() for name in ("low", "high"))
        return turns.frame.join(ends.filter(exceeds(high, low + self.spread)), on="group", how="semi")

    def _play(self, context: Context, groups: int, turns: Turns, first: int) -> Turns:
        """Further groups of tasks drawn anew, numbered from `first` on."""
        plan = Plan(
            groups=groups,
            group_size=self._size,
            seed=int(context.rng.integers(2**31)),
            iteration=context.iteration,
            run=turns["run"][0] if "run" in turns.columns else None,
            version=context.learner.updates if context.learner else 0,
        )
        frame = context.executor.play(context.env, context.team, plan).frame
        tokens = int(frame["tokens_in"].sum()) + int(frame["tokens_out"].sum())
        context.spent.add(calls=len(frame), tokens=tokens, cost=float(frame["cost"].sum()))
        return Turns(frame.with_columns((pl.col("group") + first).cast(frame.schema["group"])))
