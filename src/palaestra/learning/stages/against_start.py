"""Reward against the frozen initial policy: episodes are compared with some of the policy before it learned ([161])."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from palaestra.agents import Team
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.judges.protocol import Scorer
from palaestra.judges.rubric import cases
from palaestra.judges.scorers import build, numbers
from palaestra.learning.stages.stage import Context, Stage, stage
from palaestra.rewards.judged.criteria import EPISODE, onto


@stage
class against_start(Stage):
    """Stage: column `against.NAME`, a judge's chance that an episode beats one of the frozen initial policy.

    OneReward [161] (arXiv 2508.21066): the team as it was when the run began plays every group again, with its own
    random draws. A scorer of pairs is told a criterion and compares each episode with one of these; the value is the
    mean over the criteria of the episode's task, each limited to `ceiling`, and stands on all rows of the episode.
    Before anything is learned its mean is .5. The reference episodes cost as much play as the group, are not in the
    table and are not learned from. A credit such as `grpo(reward="against.better")` or `reward: col("against.better")`
    reads it.

    Args:
        name: Of the column.
        scorer: Text of a scorer that takes a reference (`palaestra names scorer`): 'reward_model("DIR")' of a pairwise
            judge, or 'against("…")' of a pointwise one. It sees `judges.cases` of both episodes.
        criteria: Criteria that the scorer is told, one after the other; or a mapping from a value of the column `task`
            to its criteria. None: it is told none.
        task: Column that says which criteria an episode has, where `criteria` is a mapping.
        ceiling: Highest value of one criterion, against hacking of the judge.

    Raises:
        InputError: the ceiling is not in (0, 1], there are no criteria, or a task has none; when it is called: no
            reference episode could be played.
    """

    def __init__(
        self,
        name: str,
        scorer: str | Scorer,
        *,
        criteria: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
        task: str = "part",
        ceiling: float = 1.0,
    ) -> None:
        if not 0 < ceiling <= 1:
            raise InputError(f"against_start: ceiling={ceiling} is not in (0, 1]")
        given = criteria.values() if isinstance(criteria, Mapping) else [criteria]
        if criteria is not None and (not given or not all(given)):
            raise InputError(f"against_start: criteria={criteria!r}: give at least one, for each task")
        self.scorer, self.criteria, self.task, self.ceiling = build(scorer), criteria, task, float(ceiling)
        self.column = f"against.{name}"
        self.adds = {self.column: "chance to be better than an episode of the initial policy"}
        self.needs = {"group", "episode", "turn", "seed", "action"}
        self.needs |= {task} if isinstance(criteria, Mapping) else set()
        self.start: Team | None = None
        self._saved: dict[str, dict[str, Any]] = {}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with the column; null where the scorer gives none, or no reference could be played."""
        rows = cases(turns)
        order = rows.select("group", "episode", pl.int_range(pl.len()).over("group").alias("_place"))
        played = cases(self._references(turns, context))
        places = played.with_columns(_place=pl.int_range(pl.len()).over("group"), _row=pl.int_range(pl.len()))
        found = order.join(places.select("group", "_place", "_row"), on=["group", "_place"], how="left")["_row"]
        known = found.is_not_null()
        mine, theirs = rows.filter(known), played[found.drop_nulls()]
        value = pl.Series([None] * len(rows), dtype=pl.Float64).to_frame(self.column)
        value[known.arg_true(), self.column] = self._score(mine, theirs)
        context.metrics["against_start"] = float(value[self.column].mean() or 0.0)  # type: ignore[arg-type]
        keys = [name for name in EPISODE if name in rows.columns]
        return onto(turns, rows.select(keys).hstack(value))

    def _references(self, turns: Turns, context: Context) -> Turns:
        """As many episodes of the initial team in each group as the group has."""
        from palaestra.play.plan import Plan

        if self.start is None:
            self.start = context.team.frozen_copy()
            if self._saved:
                self.start.load_state_dict(self._saved)
        groups = turns.frame.group_by("group").agg(pl.first("seed"), pl.col("episode").n_unique()).sort("group")
        plan = Plan(
            groups=len(groups),
            group_size=groups["episode"].to_list(),
            seed=int(context.rng.integers(2**31)),
            iteration=context.iteration,
            run=turns["run"][0] if "run" in turns.columns else None,
            env_seeds=[int(seed) for seed in groups["seed"]],
        )
        played = context.executor.play(context.env, self.start, plan).frame.filter(pl.col("error").is_null())
        if not len(played):
            raise InputError("against_start: no reference episode could be played")
        names = pl.DataFrame({"group": range(len(groups)), "_group": groups["group"]})
        names = names.with_columns(pl.col("group").cast(played.schema["group"]))
        joined = played.join(names, on="group", maintain_order="left")
        return Turns(joined.with_columns(group=pl.col("_group")).drop("_group"))

    def _score(self, rows: pl.DataFrame, reference: pl.DataFrame) -> pl.Series:
        """Mean over the criteria of each row's task."""
        if not isinstance(self.criteria, Mapping):
            return self._mean(rows, reference, self.criteria)
        unknown = [name for name in rows[self.task].unique().to_list() if name not in self.criteria]
        if unknown:
            raise InputError(f"against_start: criteria has none for {self.task}={unknown[0]!r}")
        places, values = [], []
        for name, criteria in self.criteria.items():
            at = (rows[self.task].cast(pl.String) == name).arg_true()
            if len(at):
                places.append(at)
                values.append(self._mean(rows[at], reference[at], criteria))
        return pl.concat(values)[pl.concat(places).arg_sort()]

    def _mean(self, rows: pl.DataFrame, reference: pl.DataFrame, criteria: Sequence[str] | None) -> pl.Series:
        """Mean over these criteria; null where the scorer gives nothing for one of them."""
        told = [None] if criteria is None else [pl.DataFrame({"criterion": [each] * len(rows)}) for each in criteria]
        each = [self.scorer.score(rows, reference=reference, condition=condition) for condition in told]
        found = [numbers(values, len(rows), f"scorer {self.scorer.name}").clip(0, self.ceiling) for values in each]
        total = found[0]
        for values in found[1:]:
            total = total + values
        return (total / len(found)).rename(self.column)

    def state_dict(self) -> dict[str, Any]:
        """States of the initial policies; empty before the first call."""
        return {"start": self._saved if self.start is None else self.start.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self._saved, self.start = state["start"], None
