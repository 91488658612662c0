"""[171] LMA3 (arXiv 2305.12487): goals that nobody gave, found in hindsight and composed of what is mastered.

A workshop instead of CookingWorld: things made of things. The world says which things were made (the relabeller),
whether an imagined goal holds (the checker) and what several goals make together; drawn goals are the hidden test list.
Left out: the language model that plays these three parts, and goals in free words.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, TabularPolicy, Team
from palaestra.agents.policy import Request
from palaestra.envs.worlds import Workshop
from palaestra.learning import PolicyGradient
from palaestra.learning.stages import Context
from palaestra.learning.stages.goal_memory import goal_memory, keep_shortest
from palaestra.play.executors import Local, Plan
from palaestra_atlas.reproductions import exact


def env() -> Workshop:
    """t2 is made of t0 and t1."""
    return Workshop(levels=2, steps=6)


def context(iteration: int = 1, policy: object = None) -> Context:
    """Context of a stage."""
    team = Team(maker=policy or ScriptedPolicy(lambda request: "make t0", name="table"))  # type: ignore[arg-type]
    return Context(np.random.default_rng(iteration), iteration, env, team, Local())


def played(stage: goal_memory, *order: int, goals: tuple[str, ...] = (), iteration: int = 1) -> pl.DataFrame:
    """The table of an episode in which these things are made, the last one over and over."""
    left = list(order)

    def play(request: Request) -> str:
        return f"make t{left.pop(0) if len(left) > 1 else left[0]}"

    told = context(iteration, ScriptedPolicy(play, name="table"))
    plan = Plan(1, env_seeds=[env().seed_of(goals)], iteration=iteration)
    return stage(Local().play(env, told.team, plan), told).frame


def ways(frame: pl.DataFrame) -> dict[str, list[str]]:
    """Actions of the script for each goal of the memory."""
    rows = frame.filter("loss_mask").with_columns(_goal=pl.col("observation").str.extract("goal: (.*); step"))
    return {str(name): part["action"].to_list() for (name,), part in rows.group_by("_goal", maintain_order=True)}


@exact
def whatever_was_reached_labels_its_way() -> None:
    """An episode without a goal teaches three: each thing that was made, by the turns up to there."""
    frame = played(goal_memory(), 0, 2, 1, 2)
    assert ways(frame) == {
        "t0": ["make t0"],
        "t1": ["make t0", "make t2", "make t1"],
        "t2": ["make t0", "make t2", "make t1", "make t2"],
    }
    seen = frame.filter("loss_mask")["observation"].to_list()
    assert [each for each in seen if each.startswith("goal: t1;")] == [f"goal: t1; step {step}" for step in range(3)]
    assert not frame.filter(pl.col("source") == "policy")["loss_mask"].any()


@exact
def the_shortest_way_is_kept() -> None:
    """A shorter way replaces a longer one, an equal one too, and a longer one nothing."""
    stage = goal_memory()
    assert len(ways(played(stage, 0, 2, 1, 2))["t2"]) == 4
    again = ways(played(stage, 1, 0, 2, iteration=2))
    assert again["t2"] == ["make t1", "make t0", "make t2"]
    assert again["t1"] == ["make t1"]
    assert ways(played(stage, 0, 1, 2, iteration=3))["t2"] == ["make t0", "make t1", "make t2"], "the newest of equals"
    assert len(ways(played(stage, 2, 2, 0, 1, 2, iteration=4))["t2"]) == 3
    assert stage.memory is not None
    assert (
        keep_shortest(stage.memory, stage.memory, pl.DataFrame(schema={"_goal": str, "_at": int}), env())
        is stage.memory
    )


@exact
def goals_are_composed_of_mastered_ones() -> None:
    """Each episode of the next round has two mastered goals, one after the other, and then both together."""
    stage, told = goal_memory(), context(2)
    first = stage.plan(Plan(4), context())
    assert set(first.env_seeds or ()) == {env().seed_of([])}, "nothing is mastered: anything goes"
    played(stage, 0, 2, 1, 2)
    world, met = env(), set()
    for seed in stage.plan(Plan(40), told).env_seeds or ():
        world.reset(int(seed))  # type: ignore[arg-type]
        asked = world.task.removeprefix("goal ").split(", then ")
        assert len(asked) == 3
        one, other, whole = asked
        assert {one, other} <= {"t0", "t1", "t2"}
        assert one != other
        assert whole == world.compose([one, other])
        met.add(whole)
    assert met <= {"t0 and t1", "t0 and t2", "t1 and t2"}
    assert len(met) >= 2
    stage.longest = 4
    tight = stage.plan(Plan(40), context(3)).env_seeds or ()
    assert env().seed_of(["t0", "t2", "t0 and t2"]) not in tight, "1 + 4 turns leave no time to look around"


@exact
def subgoals_come_in_order_and_then_anything() -> None:
    """The maker is asked for t1, then for t0, and then for nothing in particular, up to the end."""
    stage = goal_memory()
    played(stage, 0, 1, 2)
    rows = played(stage, 1, 2, 0, 2, goals=("t1", "t0", "t0 and t1"), iteration=2).filter(pl.col("source") == "policy")
    assert rows["goal"].to_list() == ["t1", "t0", "t0", "anything", "anything", "anything"]
    assert rows["observation"].to_list()[:3] == ["goal: t1; step 0", "goal: t0; step 0", "goal: t0; step 1"]
    assert rows["achieved"].to_list()[3] == ["t2"], "found on the way"


@exact
def only_what_the_checker_accepts_is_remembered() -> None:
    """An imagined goal that was not reached is no goal of the memory; one that was, is, with its whole way."""
    stage = goal_memory()
    found = ways(played(stage, 0, 0, goals=("t0", "t1", "t0 and t1")))
    assert set(found) == {"t0"}
    found = ways(played(stage, 0, 2, 1, 1, goals=("t0", "t1", "t0 and t1"), iteration=2))
    assert found["t0 and t1"] == ["make t0", "make t2", "make t1"]
    assert set(found) == {"t0", "t1", "t0 and t1"}
    parts = [["t0", "t1"], ["t1", "t0"]]
    seeds = stage.plan(Plan(40), context(3)).env_seeds
    assert set(seeds or ()) == {env().seed_of([*each, "t0 and t1"]) for each in parts}, "made of things that were made"


@exact
def a_table_learns_the_ways() -> None:
    """After a few updates the chance of each turn of the memory has risen, and it stands in every iteration's table."""
    stage, policy = goal_memory(), TabularPolicy(3, name="table")
    told = context(1, policy)
    turns = stage(Local().play(env, told.team, stage.plan(Plan(6, seed=3), told)), told)
    learner = PolicyGradient(told.team, "clone(column='loss_mask')", lr=0.3)
    for _ in range(4):
        learner.update(turns)
    memory = turns.frame.filter("loss_mask")
    assert np.exp([each.item() for each in policy.score(memory).logprobs.detach()]).min() > 1 / 3
    again = goal_memory()
    again.load_state_dict(stage.state_dict())
    assert again.memory is not None
    assert stage.memory is not None
    assert again.memory["observation"].equals(stage.memory["observation"])
    assert again.longest == stage.longest == 6
