"""Samples at omission turns: how many, in which contexts, and which of their rows are learned from."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from palaestra.agents import ScriptedPolicy, TabularPolicy, Team
from palaestra.envs.worlds import Dossier
from palaestra.errors import InputError
from palaestra.learning.stages import Context
from palaestra.learning.stages.omission_turns import omission_turns
from palaestra.play.executors import Local, Plan
from palaestra.teams import omission


def world() -> Any:
    return omission(Dossier, replies=False)()


def played(policy: Any, *, share: float = 0.5, size: int = 8) -> tuple[pl.DataFrame, Context]:
    told = Context(np.random.default_rng(0), 1, world, Team(reader=policy), Local())
    stage = omission_turns(share=share)
    plan = stage.plan(Plan(groups=5, group_size=size, seed=2), told)
    return stage(Local().play(world, Team(reader=policy), plan), told).frame, told


def test_half_of_the_episodes_begin_at_an_omission_turn():
    frame, told = played(TabularPolicy(8, name="table"))
    assert frame.select("group", "episode").n_unique() == 5 * 8
    assert frame.filter(pl.col("view") == "full").select("group", "episode").n_unique() >= 5 * 4
    rows = frame.filter((pl.col("view") != "full") & pl.col("sampled"))
    assert rows.select("group", "episode").is_unique().all(), "one row of an episode"
    assert frame.filter(pl.col("view") == "full")["sampled"].all()
    assert told.metrics["before"] + told.metrics["after"] == len(rows) == 20
    assert set(rows["source"]) == {"policy"}
    assert rows.group_by("group").agg(pl.col("state").n_unique() == 1)["state"].all(), "a group begins in one context"
    assert frame.filter("done_for" if "done_for" in frame.columns else pl.lit(False)).is_empty()


def test_of_an_odd_number_one_more_begins_before_the_omission():
    """Of 6 episodes of a group 3 are held back: 2 begin before the omission, 1 after it."""
    omits = ScriptedPolicy(lambda request: 4 * ("page 8" not in request.observation.text), name="omits")
    frame, told = played(omits, size=6)
    assert frame.select("group", "episode").n_unique() == 5 * 6
    assert (told.metrics["before"], told.metrics["after"]) == (10, 5)


def test_nothing_left_out_is_plain_play():
    frame, told = played(ScriptedPolicy(lambda request: 0, name="keeps"))
    assert set(frame["view"]) == {"full"}
    assert frame["group"].n_unique() == 5
    assert told.metrics["omissions"] == 0
    assert frame.group_by("group").agg(pl.col("episode").n_unique())["episode"].to_list() == [8] * 5


def test_an_omission_in_the_last_turn_has_no_context_after_it():
    last = ScriptedPolicy(lambda request: 4 * ("page 8" in request.observation.text), name="late")
    frame, told = played(last)
    assert set(frame["view"]) == {"full", "before"}
    assert told.metrics["before"] == 20


def test_refused():
    with pytest.raises(InputError, match="share"):
        omission_turns(share=1.0)
