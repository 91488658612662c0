"""Held-out play as scorers see it: `evaluation.scorers` of a recipe, from play to a column and to the summary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from palaestra.agents.policy import Policy
from palaestra.algebra.turns import Turns
from palaestra.errors import RecipeError, nearest
from palaestra.evaluation import comparison_table, trials, verdict
from palaestra.judges.asking import AnswerCache
from palaestra.judges.judged import PolicyAsker
from palaestra.judges.kept_calls import KeptCalls
from palaestra.judges.metering import Meter, Metered
from palaestra.judges.rubric import cases
from palaestra.judges.scorers import build, numbers
from palaestra.rewards.judged.criteria import EPISODE, onto
from palaestra.runs.config import ScorerPart

Interval = dict[str, float]


def asked(scorers: Mapping[str, ScorerPart]) -> dict[str, tuple[str, ...]]:
    """Dict from `evaluation.scorers.NAME` to names of policies that it asks, of `scorers` {NAME: `ScorerPart`}."""
    return {
        f"evaluation.scorers.{name}": tuple(getattr(build(part.scorer), "asks", ())) for name, part in scorers.items()
    }


class Scoring:
    """Callable that adds columns `score.NAME` to a system's held-out turns; scorers may ask `policies` within budgets.

    policies: whom they may ask, by name. seed: of votes. systems: how many will be scored: each may use an equal part
    of what is left of a budget, so that none is scored at the expense of the next. Equal questions are asked once.
    kept_calls: where calls of endpoints that a scorer asks are kept.

    Raises:
        RecipeError: a scorer asks a policy that is not there.
    """

    def __init__(
        self,
        scorers: Mapping[str, ScorerPart],
        policies: Mapping[str, Policy],
        *,
        seed: int,
        systems: int = 1,
        kept_calls: KeptCalls | None = None,
    ) -> None:
        self.scorers = {name: build(part.scorer) for name, part in scorers.items()}
        self.meters: dict[str, list[Meter]] = {name: [] for name in scorers}
        self.missing, self.episodes = dict.fromkeys(scorers, 0), 0
        self.systems = systems
        for name, scorer in self.scorers.items():
            part, asks = scorers[name], getattr(scorer, "asks", ())
            if kept_calls is not None:
                kept_calls.attach(scorer)
            askers: dict[str, PolicyAsker] = {}
            for policy in dict.fromkeys(asks):
                if policy not in policies:
                    raise RecipeError(
                        f"evaluation.scorers.{name} asks the policy {policy!r}{nearest(policy, policies)}"
                    )
                self.meters[name].append(meter := Meter(part.budget))
                asked = Metered(policies[policy], meter)
                askers[policy] = PolicyAsker(asked, cache=AnswerCache(part.cache), attempts=2, seed=seed)
            if asks:
                scorer.bind(askers.__getitem__)

    def __call__(self, turns: Turns) -> Turns:
        """A copy of one system's turns with `score.NAME`: a value per episode, null where the scorer gives none."""
        rows = cases(turns) if self.scorers else pl.DataFrame()
        keys = [key for key in EPISODE if key in rows.columns]
        for name, scorer in self.scorers.items():
            for meter in self.meters[name]:
                meter.share(max(self.systems, 1))
            values = numbers(scorer.score(rows), len(rows), f"scorer {scorer.name}")
            self.missing[name] += values.null_count()
            turns = onto(turns, rows.select(keys).with_columns(values.alias(f"score.{name}")))
        self.systems, self.episodes = self.systems - 1, self.episodes + len(rows)
        return turns

    def totals(self) -> dict[str, dict[str, Any]]:
        """Totals by scorer: episodes scored, missing values, and amounts spent."""
        found = {}
        for name, meters in self.meters.items():
            each = [meter.totals() for meter in meters]
            spent = {word: sum(one[word] for one in each) for word in Meter().totals()}
            found[name] = {"episodes": self.episodes, "missing": self.missing[name], **spent}
        return found


def compare_scores(
    turns: Turns, scorers: Iterable[str], where: pl.Expr | None, told: Iterable[Mapping[str, Any]] = ()
) -> dict[str, dict[str, Any]]:
    """Dict by scorer name from `Turns` of all systems with `score.NAME`: means with intervals, difference, verdict.

    The difference is after - before.

    told: `Scoring.totals` of every seed; with it also `spent`, what the scorer took in all of them, and `missing`.
    """
    every, found = list(told), {}
    for name in scorers:
        spent = _sum([each[name] for each in every if name in each])
        lacking, episodes = spent.pop("missing", 0), spent.pop("episodes", 0)
        said = f"; {lacking:,} of {episodes:,} episodes have no score" if lacking else ""
        if refused := spent.get("refused"):
            said += f", {refused:,} questions were beyond the budget"
        taken = {"missing": lacking, "spent": spent} if every else {}
        table = trials(turns, where=where, score=f"score.{name}")
        if table["score"].null_count() == len(table):
            found[name] = {"systems": {}, "difference": None, "verdict": f"{name}: no trial has a score{said}", **taken}
            continue
        rows = {row.system: row for row in comparison_table(table, baseline="before", value="score")}
        after = rows["after"].difference
        found[name] = {
            "systems": {system: _three(row.score.to_dict()) for system, row in rows.items()},
            "difference": None if after is None else _three(after.to_dict()) | {"p": after.p},
            "verdict": f"{name}: {verdict(rows['after'])}{said}",
            **taken,
        }
    return found


def _sum(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {word: sum(part[word] for part in parts) for word in (parts[0] if parts else ())}


def _three(estimate: Mapping[str, Any]) -> Interval:
    return {key: estimate[key] for key in ("mean", "low", "high")}
