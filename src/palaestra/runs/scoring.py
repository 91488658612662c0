"""Held-out play as scorers see it: `evaluation.scorers` of a recipe, from play to a column and to the summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from palaestra.agents.base import Policy
from palaestra.algebra.turns import Turns
from palaestra.errors import RecipeError, nearest
from palaestra.evaluation import comparison_table, trials, verdict
from palaestra.judges.judged import PolicyAsker
from palaestra.judges.rubric import cases
from palaestra.judges.scorers import build, numbers
from palaestra.rewards.judged.criteria import EPISODE, onto

Interval = dict[str, float]


def asked(scorers: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The policies of the recipe that each scorer asks, by what messages call it."""
    return {f"evaluation.scorers.{name}": tuple(getattr(build(text), "asks", ())) for name, text in scorers.items()}


def scored(turns: Turns, scorers: Mapping[str, str], policies: Mapping[str, Policy], *, seed: int) -> Turns:
    """The play of one system with `score.NAME`: what the scorer gives to each episode, null where it gives nothing.

    Raises:
        RecipeError: a scorer asks a policy that is not there.
    """
    for name, text in scorers.items():
        scorer = build(text)
        for policy in getattr(scorer, "asks", ()):
            if policy not in policies:
                raise RecipeError(f"evaluation.scorers.{name} asks the policy {policy!r}{nearest(policy, policies)}")
        if getattr(scorer, "asks", ()):
            scorer.bind(lambda policy: PolicyAsker(policies[policy], attempts=2, seed=seed))  # type: ignore[attr-defined]
        rows = cases(turns)
        values = numbers(scorer.score(rows), len(rows), f"scorer {scorer.name}")
        keys = [key for key in EPISODE if key in rows.columns]
        turns = onto(turns, rows.select(keys).with_columns(values.alias(f"score.{name}")))
    return turns


def compared(turns: Turns, scorers: Mapping[str, str], where: pl.Expr | None) -> dict[str, dict[str, Any]]:
    """By scorer: the mean of every system with its interval, the difference of after from before, and the verdict."""
    found: dict[str, dict[str, Any]] = {}
    for name in scorers:
        table = trials(turns, where=where, score=f"score.{name}")
        if table["score"].null_count() == len(table):
            found[name] = {"systems": {}, "difference": None, "verdict": f"{name}: no trial has a score"}
            continue
        rows = {row.system: row for row in comparison_table(table, baseline="before", value="score")}
        after = rows["after"].difference
        found[name] = {
            "systems": {system: _three(row.score.to_dict()) for system, row in rows.items()},
            "difference": None if after is None else _three(after.to_dict()) | {"p": after.p},
            "verdict": f"{name}: {verdict(rows['after'])}",
        }
    return found


def _three(estimate: Mapping[str, Any]) -> Interval:
    return {key: estimate[key] for key in ("mean", "low", "high")}
