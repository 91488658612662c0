"""Plays a team through shifts of its world, frozen and learning on: `palaestra analyze adapt`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from palaestra.errors import InputError
from palaestra.evaluation.adaptability import adaptability
from palaestra.evaluation.analyses import ANALYSES, Analysis

if TYPE_CHECKING:
    from palaestra.runs.recipe import Recipe

NAMES = {"shift", "magnitude", "changes"}


def train_under_shifts(
    recipe: Recipe,
    shifts: Sequence[Mapping[str, Any]],
    *,
    seed: int = 0,
    steps: int = 5,
    episodes: int = 32,
) -> pl.DataFrame:
    """Trains a `Recipe`'s team and measures its returns under `shifts` of its world: DataFrame by phase and step.

    The table is what `adaptability` reads.

    Args:
        recipe: whose team is trained first, and again from scratch under each shift, which gives the reference.
        shifts: of each the name `shift`, its `magnitude`, and `changes`, fields of the recipe, of the env most often.
            Policies must fit the changed world.
        seed: of trainings and play.
        steps: iterations in which the trained team goes on learning under the shift.
        episodes: of each measurement of a team that does not learn.
    """
    from palaestra.play.executors import Plan
    from palaestra.runs.build import resolve
    from palaestra.runs.inline import learn  # brings torch
    from palaestra.runs.recipe import override

    base = learn(recipe, seed=seed)
    weights = base.team.state_dict()
    start = learn(recipe, {"train": {"iterations": 0}}, seed=seed).team.state_dict()
    kept = {name: {key: value.clone() for key, value in state.items()} for name, state in weights.items()}

    def measured(where: Recipe, state: Mapping[str, Any]) -> float:
        setup = resolve(where)
        team = setup.team(seed, ())
        team.load_state_dict({name: dict(each) for name, each in state.items()})
        plan = Plan(groups=episodes, seed=seed, stream="eval")
        played = setup.executor().play(setup.test, team, plan).frame
        return float(played["reward"].sum()) / (episodes * played["agent"].n_unique())

    rows: list[dict[str, Any]] = []
    home = {"random": measured(recipe, start), "reference": measured(recipe, kept)}
    for each in shifts:
        changes, name = dict(each["changes"]), {"shift": str(each["shift"]), "magnitude": float(each["magnitude"])}
        there = override(recipe, changes)
        scratch = learn(there, seed=seed)
        more = learn(override(there, {"train": {"iterations": steps}}), seed=seed, start=kept)
        refs = {"random": measured(there, start), "reference": measured(there, scratch.team.state_dict())}

        returns = {
            "frozen": [measured(there, kept)],
            "retrained": more.curve("reward"),
            "scratch": scratch.curve("reward"),
            "base_before": [home["reference"]],
            "base_after": [measured(recipe, more.team.state_dict())],
        }
        for phase, curve in returns.items():
            between = home if phase.startswith("base") else refs
            rows += [
                {**name, "seed": seed, "phase": phase, "step": step, "return": value, **between}
                for step, value in enumerate(curve, 1)
            ]
    return pl.DataFrame(rows)


@ANALYSES.register("adapt")
def adapt(seed: int | None = None, steps: int = 5, episodes: int = 32, level: float = 0.9) -> Analysis:
    """Makes an analysis, a function (recipe file, shifts file) -> DataFrame: how a trained team copes with its shifts.

    Reads RECIPE.yaml and SHIFTS.json, a list of shift, magnitude, changes.
    The team is trained, measured frozen under each shift, learns on for `steps` iterations, and is measured at home.
    seed: default, the first of the recipe.
    """

    def answer(recipe: Path, shifts: Path) -> pl.DataFrame:
        from palaestra.runs.recipe import load

        try:
            told = json.loads(shifts.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{shifts}: cannot be read: {str(error).splitlines()[0]}") from error
        if not isinstance(told, list) or any(not isinstance(each, dict) or set(each) != NAMES for each in told):
            raise InputError(f"{shifts}: a list of objects with {', '.join(sorted(NAMES))} is needed")
        made = load(recipe)
        first = made.seeds[0] if seed is None else seed
        return adaptability(train_under_shifts(made, told, seed=first, steps=steps, episodes=episodes), level=level)

    return answer
