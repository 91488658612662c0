"""Reflection: who reads what, from which past, and a stop that forgets nothing."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra import envs
from palaestra.agents import ScriptedPolicy, Team
from palaestra.errors import InputError
from palaestra.learning.stages.reflect import reflect
from palaestra.learning.stages.stage import Context
from palaestra.play.executors import Local, Plan

ENV = envs.make("native/answers", tasks=2, answers=2, draw=2)
FIRST = Team(answerer=ScriptedPolicy(lambda request: 0, name="first"))


def run(stage: reflect, iteration: int) -> pl.DataFrame:
    context = Context(np.random.default_rng(iteration), iteration, ENV, FIRST, Local())
    plan = stage.plan(Plan(groups=6, group_size=4, iteration=iteration), context)
    assert plan.group_size == [2] * 6
    return stage(Local().play(ENV, FIRST, plan), context).frame


def test_only_tasks_that_failed_are_reflected_upon() -> None:
    stage = reflect(template="Not {answer}!")
    first, second = run(stage, 1), run(stage, 2)
    assert len(first) == len(second) == 24
    assert not first["reflected"].any(), "there is no past"
    failed = set(first.filter(~pl.col("success"))["task"])
    assert len(failed) == 1, "one of the two tasks has another right answer"
    later = second.filter(pl.col("episode") >= 2)
    assert (later["reflected"] == later["task"].is_in(failed)).all()
    assert set(later.filter("reflected")["observation"].str.split("\n\n").list.first()) == {"Not answer 0!"}
    assert not second.filter(pl.col("episode") < 2)["reflected"].any()
    same = second.group_by("group").agg(pl.col("task", "seed").n_unique())
    assert set(same["task"]) == set(same["seed"]) == {1}


def test_a_stop_forgets_nothing() -> None:
    stage, again = reflect(), reflect()
    run(stage, 1)
    again.load_state_dict(stage.state_dict())
    assert run(again, 2).drop("duration").equals(run(stage, 2).drop("duration"))


@pytest.mark.parametrize("options", [{"share": 1.0}, {"last": 0}, {"template": "try again"}])
def test_what_it_refuses(options: dict[str, float]) -> None:
    with pytest.raises(InputError, match="reflect: share"):
        reflect(**options)  # type: ignore[arg-type]
