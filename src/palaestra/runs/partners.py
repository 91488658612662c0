"""Trains a team, then lets it adapt to partners that it never met: `palaestra analyze partners`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from palaestra.agents.policy import Policy
from palaestra.agents.team import Team
from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.evaluation.analyses import ANALYSES, Analysis
from palaestra.rewards import components

if TYPE_CHECKING:
    from palaestra.runs.build import Setup
    from palaestra.runs.inline import TrainingResult


def with_partners(
    trained: TrainingResult,
    partners: Mapping[str, Policy],
    *,
    steps: int = 5,
    episodes: int = 64,
    rate: float = 1.0,
    test: int = 400,
    seed: int = 0,
) -> pl.DataFrame:
    """Table of a `TrainingResult`'s success with a partner in all seats but one, before, after that one adapts.

    An adaptation is `steps` steps of plain gradient descent on the surrogate loss, each on new episodes with reward and
    credit of the recipe. It begins at the trained team every time, and leaves that as it is.

    Args:
        trained: as `palaestra.runs.inline.learn` returns it.
        partners: policies that fill a seat, by name; they do not learn.
        steps: steps of an adaptation.
        episodes: of each step.
        rate: length of a step, of gradients that are not clipped.
        test: episodes of each measurement.
        seed: of play.

    Returns:
        Table `partner, seat, before, after, gain`: seat of the team's own policy, shares of successful episodes, and
        their difference. The first row, "all", has the means.

    Raises:
        InputError: the recipe has stages, no policy of the team is a network that can adapt, or no episode says whether
            it succeeded.
    """
    from palaestra.learning.meta_gradient import MetaGradient, adaptable
    from palaestra.play.executors import Plan

    setup, rows = trained.setup, []
    _check(setup)
    learn = trained.team.trainable
    if unfit := next((each.name for each in learn if not adaptable(each)), None):
        raise InputError(f"partners: policy {unfit!r} is no small network, as kind mlp is, and only those adapt")
    if not learn:
        raise InputError("partners: no policy of the team learns, so none adapts to a partner")
    for number, (name, partner) in enumerate(partners.items()):
        for place, (seat, policy) in enumerate(trained.team.items()):
            if not any(policy is each for each in learn):
                continue
            own = policy.twin()  # type: ignore[attr-defined]
            team = Team({agent: own if agent == seat else partner for agent in trained.team})
            learner = MetaGradient(team, rate=rate)
            at = seed * 10_000 + (number * len(trained.team) + place) * 100

            def success(at: int = at, team: Team = team) -> float:
                plan = Plan(groups=test, seed=at, stream="eval")
                played = trained.executor.play(setup.test, team, plan).frame
                share = played.group_by("group").agg(pl.col("success").cast(float).max())["success"].mean()
                if not isinstance(share, float):
                    raise InputError("partners: no episode says whether it succeeded, so nothing can be compared")
                return share

            before = success()
            for step in range(1, steps + 1):
                plan = Plan(groups=episodes, seed=at + step, iteration=step)
                turns = trained.executor.play(setup.train, team, plan).with_column(opponent=pl.lit(name))
                learner.adapt(_paid(turns, setup.reward).with_column(advantage=setup.credit))
            after = success()
            rows.append({"partner": name, "seat": seat, "before": before, "after": after, "gain": after - before})
    found = pl.DataFrame(rows)
    means = found.select(partner=pl.lit("all"), seat=pl.lit("all"), **{c: pl.col(c).mean() for c in found.columns[2:]})
    return pl.concat([means, found])


def _check(setup: Setup) -> None:
    """Whether an adaptation has all that the recipe's credit is made of."""
    if setup.stages:
        raise InputError(
            f"partners: the recipe has the stage {setup.stages[0]}, and an adaptation to a partner runs none; take a "
            "recipe without stages"
        )


def _paid(turns: Turns, reward: Signal | dict[str, Signal] | None) -> Turns:
    """The turns with the recipe's reward, as a trainer pays it."""
    if isinstance(reward, dict):
        return components(turns, reward)
    return turns if reward is None else turns.with_column(reward=reward)


@ANALYSES.register("partners")
def partners(
    seed: int | None = None, steps: int = 5, episodes: int = 64, rate: float = 1.0, test: int = 400
) -> Analysis:
    """Makes an analysis (recipe file, partners file -> DataFrame): success with new partners before and after adapting.

    Reads RECIPE.yaml and PARTNERS.json: kind and options of a policy by name, as under `policies` of a recipe. The
    team is trained first. See `palaestra.runs.partners.with_partners`.
    seed: default, the first of the recipe.
    """

    def answer(recipe: Path, file: Path) -> pl.DataFrame:
        from palaestra.runs.build import policy, resolve
        from palaestra.runs.config import PolicyPart
        from palaestra.runs.inline import learn
        from palaestra.runs.recipe import load

        try:
            told: Any = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{file}: cannot be read: {str(error).splitlines()[0]}") from error
        if not isinstance(told, dict) or not all(isinstance(each, dict) and "kind" in each for each in told.values()):
            raise InputError(f"{file}: an object of policies by name is needed, each with kind and options")
        made = load(recipe)
        first = made.seeds[0] if seed is None else seed
        parts = {name: PolicyPart.model_validate(each) for name, each in told.items()}
        _check(resolve(made))  # before anything is trained
        trained = learn(made, seed=first)
        met = {
            name: policy(name, part, factory=trained.setup.train, seed=first * 1000 + number)
            for number, (name, part) in enumerate(parts.items())
        }
        return with_partners(trained, met, steps=steps, episodes=episodes, rate=rate, test=test, seed=first)

    return answer
