"""Groups that agree are replaced by others, and the episodes that this takes are counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from palaestra.agents import TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs import make
from palaestra.errors import InputError
from palaestra.learning.stages import Context
from palaestra.learning.stages.dynamic_sampling import dynamic_sampling
from palaestra.play.executors import Local, Plan
from palaestra.runs.inline import learn


def sampled(stage: dynamic_sampling, groups: int = 8, size: int = 2) -> tuple[Turns, Turns, Context]:
    team = Team(answerer=TabularPolicy(8, name="answerer", capacity=64))
    context = Context(np.random.default_rng(0), 1, make("native/answers"), team, Local())
    plan = stage.plan(Plan(groups=groups, group_size=size, seed=3), context)
    first = Local().play(context.env, team, plan)
    return first, stage(first, context), context


def informative(turns: Turns) -> set[int]:
    groups = turns.frame.group_by("group").agg(both=pl.col("success").n_unique() == 2)
    return set(groups.filter("both")["group"])


def test_groups_that_agree_are_replaced_until_there_are_as_many_as_planned() -> None:
    first, whole, context = sampled(dynamic_sampling(rounds=20))
    assert 0 < len(informative(first)) < 8, "chance alone is right once in eight"
    assert informative(whole) == set(whole["group"]), "every group that is left says something"
    assert informative(first) < set(whole["group"]), "those of the plan stay, under their numbers"
    assert min(set(whole["group"]) - informative(first)) >= 8, "others never take the number of a planned one"
    told = context.metrics
    assert whole["group"].n_unique() == told["kept"] == told["groups"] == 8
    assert context.spent.calls == told["extra_episodes"] > 0, "every turn that was played is paid for"
    assert told["extra_share"] == told["extra_episodes"] / 16
    assert told["uninformative"] == told["extra_episodes"] / 2
    assert told["score"] == pytest.approx(1 / 8, abs=0.1), "of all that were played, not of the kept ones"


def test_rounds_bound_the_cost() -> None:
    first, whole, context = sampled(dynamic_sampling(rounds=0))
    assert set(whole["group"]) == informative(first)
    assert context.metrics["extra_episodes"] == 0
    _, _, once = sampled(dynamic_sampling(rounds=1))
    assert once.metrics["extra_episodes"] == 2 * (8 - len(informative(first)))


def test_where_no_group_differs_the_iteration_is_as_it_was_played() -> None:
    first, whole, context = sampled(dynamic_sampling(rounds=2, spread=1.0))
    assert whole is first
    assert context.metrics["kept"] == 0
    assert context.metrics["extra_episodes"] == 32


def test_a_run_learns_from_full_batches_and_says_what_they_cost() -> None:
    seen: list[Turns] = []
    changes: dict[str, Any] = {"stages": ["dynamic_sampling(rounds=9)"], "reward": "2 * success_reward()"}
    changes |= {"train": {"iterations": 2, "groups": 4, "group_size": 4}}
    done = learn("answers", changes, on_turns=lambda _, turns: seen.append(turns))
    told = done.lines[-1]["stages"]["dynamic_sampling"]
    assert told["kept"] == 4
    assert told["extra_episodes"] == told["calls"] > 0
    assert (seen[-1]["advantage"].abs() > 0).all()
    assert set(seen[-1]["reward"]) == {0.0, 2.0}, "further episodes have the recipe's reward"


@pytest.mark.parametrize(
    ("options", "message"),
    [({"rounds": -1}, "rounds"), ({"spread": -1.0}, "spread"), ({"score": "reward"}, "further episodes")],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        dynamic_sampling(**options)


def test_a_score_that_nobody_gives_is_an_error() -> None:
    stage = dynamic_sampling()
    context = Context(np.random.default_rng(0), 1, None, None, Local())  # type: ignore[arg-type]
    stage.plan(Plan(groups=1, group_size=2), context)
    with pytest.raises(InputError, match="missing on every episode"):
        stage(Turns({"group": [0, 0], "episode": [0, 1], "success": [None, None]}), context)


def test_it_stands_before_a_stage_that_adds_groups() -> None:
    short = {"train": {"iterations": 2, "groups": 2, "group_size": 2}}
    with pytest.raises(InputError, match="stand it before"):
        learn("answers", {"stages": ["accumulate(2)", "dynamic_sampling()"]} | short)
    learn("answers", {"stages": ["dynamic_sampling()", "accumulate(2)"]} | short)


def test_scores_that_differ_by_rounding_are_alike() -> None:
    turns = Turns({"group": [0, 0, 1, 1], "episode": [0, 1, 0, 1], "score": [0.3, 0.1 + 0.2, 0.3, 0.4]})
    for spread, left in ((0.0, [1, 1]), (0.1, [])):
        stage = dynamic_sampling("score", spread=spread)
        assert stage._informative(turns, stage._of_episodes(turns))["group"].to_list() == left
