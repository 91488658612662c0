"""A teacher that the learner replaces: when, and that a stopped run has the same copy."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.agents import ScriptedPolicy, TabularPolicy, Team
from palaestra.envs import make
from palaestra.errors import InputError
from palaestra.learning.stages import Context
from palaestra.learning.stages.evolving_teacher import evolving_teacher
from palaestra.play.executors import Local, Plan


def sources(stage: evolving_teacher, iteration: int) -> pl.DataFrame:
    team = Team(opener=TabularPolicy(4, name="table"))
    advisers = {"teacher": ScriptedPolicy(lambda request: "turn to 2", name="teacher")}
    env = make("native/lock", steps=3)
    told = Context(np.random.default_rng(iteration), iteration, env, team, Local(), advisers=advisers)
    plan = stage.plan(Plan(groups=2, group_size=4, seed=1, iteration=iteration), told)
    return stage(Local().play(env, team, plan), told).frame.filter(pl.col("source") != "policy")


def test_the_copy_takes_the_seat_and_is_found_again() -> None:
    stage = evolving_teacher("teacher", after=1)
    assert sources(stage, 1)["source"].unique().to_list() == ["teacher"]
    assert sources(stage, 2)["source"].unique().to_list() == ["tuned"]
    again = evolving_teacher("teacher", after=1)
    again.load_state_dict(stage.state_dict())
    rows = [sources(each, 3) for each in (stage, again)]
    assert again.since == stage.since == 2
    assert rows[0].select("action", "source", "loss_mask").equals(rows[1].select("action", "source", "loss_mask"))
    assert set(rows[0]["policy"].cast(pl.String)) == {"table"}


def test_bad_options_are_refused() -> None:
    with pytest.raises(InputError, match="after=0"):
        evolving_teacher("teacher", after=0)
