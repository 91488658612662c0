"""Quest: steps count in order, one thing is carried at a time, and one network fits every size."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from palaestra.agents import Team
from palaestra.agents.scripted import ScriptedPolicy
from palaestra.envs.worlds import Quest
from palaestra.envs.worlds.quest import HAND, OBJECTS, shortest
from palaestra.errors import InputError
from palaestra.play.rollout import rollout


def begun(seed: int = 0, **options: Any) -> Quest:
    env = Quest(**options)
    env.reset(seed)
    return env


def test_a_step_counts_when_it_is_its_turn() -> None:
    env = begun()
    (thing, _), (_, goal) = env.state.quest[:2]
    other = next(each for each in range(len(OBJECTS)) if each != thing and env.state.places[each] >= 0)
    env.state.places[thing] = env.state.places[other] = env.state.room = 1 - goal
    assert env.step({"hero": f"take {OBJECTS[other]}"}).info["gained"] == 0
    assert env.step({"hero": f"take {OBJECTS[thing]}"}).info["gained"] == 0, "the hand is full"
    env.step({"hero": "leave"})
    assert env.step({"hero": f"take {OBJECTS[thing]}"}).info == {"valid": {"hero": True}, "gained": 1.0, "most": 4}
    assert env.state.places[thing] == HAND
    env.step({"hero": "east" if goal else "west"})
    assert env.step({"hero": "leave"}).info["gained"] == 1
    assert env.state.done == 2


def test_walls_stop_and_time_runs_out() -> None:
    env = begun(rooms=2, length=1)
    for _ in range(2):
        assert not env.step({"hero": "west"}).terminated
        assert env.state.room == 0
    end = env.step({"hero": "west"})
    assert end.terminated
    assert end.rewards == {"hero": 0.0}
    assert not end.info["success"]


@pytest.mark.parametrize("size", [(2, 2, 1), (2, 3, 4), (4, 6, 8), (6, 6, 11)])
def test_the_shortest_way_always_fits(size: tuple[int, int, int]) -> None:
    make = functools.partial(Quest, rooms=size[0], objects=size[1], length=size[2])
    turns = rollout(make, Team(hero=ScriptedPolicy(shortest)), groups=40, group_size=1)
    assert turns["success"].drop_nulls().all()
    assert turns["gained"].sum() == 40 * size[2]


def test_no_step_is_done_before_it_begins() -> None:
    for seed in range(50):
        env = begun(seed, rooms=3, objects=2, length=6)
        places = list(env.state.places)
        for at, (thing, goal) in enumerate(env.state.quest):
            assert (goal == HAND) == (at % 2 == 0)
            assert places[thing] != goal
            if goal != HAND:
                places[thing] = goal


def test_the_test_split_may_be_larger() -> None:
    assert begun(larger=(4, 6, 8), split="test").length == 8
    assert begun(larger=(4, 6, 8)).length == 4


@pytest.mark.parametrize("options", [{"rooms": 1}, {"objects": 7}, {"length": 0}, {"larger": (2, 3), "split": "test"}])
def test_what_is_out_of_range_is_named(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="Quest"):
        Quest(**options)
