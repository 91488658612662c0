"""A memory of goals: which ways it keeps, what it asks for, and that it is found again after a stop."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.agents import TabularPolicy, Team
from palaestra.envs import make
from palaestra.envs.worlds import Workshop
from palaestra.errors import InputError
from palaestra.learning.stages import Context
from palaestra.learning.stages.goal_memory import goal_memory
from palaestra.play.executors import Local, Plan


def context(iteration: int = 1, name: str = "native/workshop") -> Context:
    return Context(
        np.random.default_rng(iteration), iteration, make(name), Team(maker=TabularPolicy(15, name="table")), Local()
    )


def round_of(stage: goal_memory, iteration: int = 1) -> tuple[pl.DataFrame, Context]:
    told = context(iteration)
    plan = stage.plan(Plan(groups=6, seed=4, iteration=iteration), told)
    return stage(Local().play(told.env, told.team, plan), told).frame, told


def test_the_memory_holds_the_shortest_way_of_all_rounds() -> None:
    stage, least = goal_memory(), dict[str, int]()
    for iteration in (1, 2, 3):
        frame, told = round_of(stage, iteration)
        played = frame.filter(pl.col("source") == "policy").explode("achieved").drop_nulls("achieved")
        for goal, turn in played.select("achieved", "turn").iter_rows():
            least[goal] = min(least.get(goal, 99), turn + 1)
        assert stage.memory is not None
        sizes = dict(stage.memory.group_by("_goal").len().iter_rows())
        assert {goal: sizes[goal] for goal in least} == least
        assert told.metrics["goals"] == len(sizes)
        memory = frame.filter("loss_mask")
        assert memory.select("group", "turn").is_unique().all()
        assert memory["group"].min() == 6
        assert set(memory["iteration"]) == {iteration}


def test_rounds_after_a_stop_are_those_without_one() -> None:
    stage = goal_memory()
    round_of(stage)
    again = goal_memory()
    again.load_state_dict(stage.state_dict())
    frames = [
        round_of(each, 2)[0].select("group", "turn", "action", "observation", "loss_mask") for each in (stage, again)
    ]
    assert frames[0].equals(frames[1])


def test_what_is_drawn_or_known_is_not_composed() -> None:
    plan = Plan(groups=3, seed=4)
    assert goal_memory(goals="drawn").plan(plan, context()) is plan
    stage = goal_memory(goals="known")
    round_of(stage)
    world, known = Workshop(), stage.memory
    assert known is not None
    for seed in stage.plan(plan, context(2)).env_seeds or ():
        world.reset(int(seed))  # type: ignore[arg-type]
        assert world.task.removeprefix("goal ") in set(known["_goal"])


def test_bad_options_are_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'composed'"):
        goal_memory(goals="compose")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="k=0"):
        goal_memory(k=0)
    with pytest.raises(InputError, match="no seed_of"):
        goal_memory().plan(Plan(2), context(name="native/lock"))
    with pytest.raises(InputError, match="4 goals; at most 3"):
        Workshop().seed_of(["t0"] * 4)
    with pytest.raises(InputError, match="'t99' is no goal"):
        Workshop().compose(["t99"])


def test_a_workshop_makes_what_it_can() -> None:
    world = Workshop(levels=2, steps=4)
    world.reset(world.seed_of(["t0", "t1 and t0"]))
    assert world.step({"maker": "make t2"}).info["achieved"] == []
    assert world.step({"maker": "make t0"}).observations["maker"].text == "goal: t0 and t1; step 0"
    assert not world.step({"maker": "make t0"}).info["held"]
    result = world.step({"maker": "make t1"})
    assert result.info["held"]
    assert result.info["success"]
    assert result.rewards == {"maker": 1.0}
