"""Demonstrations: somebody else's episodes in the learner's seat, scored as the learner would have said them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.agents import ScriptedPolicy, TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs import make
from palaestra.errors import InputError
from palaestra.learning.stages import Context
from palaestra.learning.stages.demonstrate import demonstrate
from palaestra.play.executors import Local, Plan


def context(**advisers: ScriptedPolicy) -> Context:
    team = Team(opener=TabularPolicy(4, name="table"))
    return Context(np.random.default_rng(0), 1, make("native/lock", steps=3), team, Local(), advisers=advisers)


def test_rows_are_the_learners_but_for_who_chose() -> None:
    told = context(teacher=ScriptedPolicy(lambda request: "turn to 2", name="teacher"))
    stage = demonstrate("teacher", verdict='col("right")')
    plan = stage.plan(Plan(groups=2, group_size=4, seed=1), told)
    own = Local().play(told.env, told.team, plan).frame.with_columns(before=pl.lit(1))
    whole = stage(Turns(own), told).frame
    rows = whole.filter(pl.col("source") == "teacher")
    assert len(rows) == 2 * 2 * 3
    assert rows["policy"].cast(pl.String).unique().to_list() == ["table"]
    assert rows["action_ids"].to_list() == [[2]] * 12
    np.testing.assert_allclose(rows["logprobs"].list.first().to_numpy(), np.log(1 / 4), atol=1e-6)
    assert rows["before"].is_null().all(), "they went through no stage before"
    assert (rows["loss_mask"] == rows["right"]).all()
    assert not whole.filter(pl.col("source") == "policy")["loss_mask"].any()
    assert len(whole.unique(["group", "episode"])) == 8


def test_bad_options_are_refused() -> None:
    with pytest.raises(InputError, match="share=1"):
        demonstrate("teacher", share=1)
    told = context()
    stage = demonstrate("teacher")
    plan = stage.plan(Plan(groups=1, group_size=2, seed=1), told)
    with pytest.raises(InputError, match="no adviser 'teacher'"):
        stage(Local().play(told.env, told.team, plan), told)
