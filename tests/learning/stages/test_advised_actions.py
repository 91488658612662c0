"""An adviser's actions on the learner's states: numbers, what is refused, and other stages' columns."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.agents import ScriptedPolicy, TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Corridor
from palaestra.errors import InputError
from palaestra.learning.stages import Context
from palaestra.learning.stages.advised_actions import advised_actions
from palaestra.play.executors import Local, Plan


def played(script: object, *, share: float = 1.0, change: object = None) -> tuple[pl.DataFrame, Context]:
    team = Team(walker=TabularPolicy(3, name="table"))
    advisers = {"guide": ScriptedPolicy(script, name="guide")}  # type: ignore[arg-type]
    told = Context(np.random.default_rng(0), 1, Corridor, team, Local(), advisers=advisers)
    turns = Local().play(Corridor, team, Plan(groups=3, group_size=2)).with_column(weight=pl.lit(1.0))
    frame = turns.frame if change is None else turns.frame.with_columns(change)  # type: ignore[call-overload]
    return advised_actions("guide", share=share)(Turns(frame), told).frame, told


def test_each_state_once_more_with_the_adviser_s_action() -> None:
    frame, told = played(lambda request: "right")
    own, added = frame.filter(~pl.col("advised")), frame.filter("advised")
    assert added["observation"].to_list() == own["observation"].to_list()
    assert set(added["action"]) == {"right"}
    assert set(added["action_ids"].list.first()) == {1}
    assert added["weight"].null_count() == len(added)
    assert own["weight"].null_count() == 0
    assert (set(own["group"]), set(added["group"])) == ({0, 1, 2}, {3, 4, 5})  # numbered on
    assert told.metrics["advised"] == len(added)
    assert told.spent.calls == len(added)


def test_what_is_not_legal_is_left_out() -> None:
    frame, told = played(lambda request: "fly", share=0.5)
    assert not frame["advised"].any()
    assert told.metrics["refused"] > 0


def test_faults() -> None:
    with pytest.raises(InputError, match="share=0"):
        advised_actions("guide", share=0)
    with pytest.raises(InputError, match="is another one when it is played again"):
        played(lambda request: "right", change=pl.lit("door").cast(pl.Categorical).alias("agent"))
