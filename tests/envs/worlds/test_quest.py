"""Quest: steps count in order, one thing is carried at a time, and one network fits every size."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from palaestra.agents import Team
from palaestra.agents.policy import Request
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


def test_features_tell_the_step_and_the_way_to_it() -> None:
    """Take or leave; west, here or east: of the thing, of the goal once it is carried, of it if it is dropped."""
    env, things = begun(rooms=3), len(OBJECTS)
    (thing, _), (_, goal) = env.state.quest[:2]
    env.state.places[thing], env.state.room = (goal + 1) % 3, goal

    def way() -> tuple[list[float], int]:
        seen = env.look()["hero"].array
        assert seen is not None
        return seen[things : things + 2].tolist(), int(np.argmax(seen[things + 2 : things + 5])) - 1

    assert way() == ([1.0, 0.0], int(np.sign(env.state.places[thing] - goal)))
    env.state.room = env.state.places[thing]
    assert way() == ([1.0, 0.0], 0)
    env.step({"hero": f"take {OBJECTS[thing]}"})
    assert way() == ([0.0, 1.0], int(np.sign(goal - env.state.room)))
    env.step({"hero": "leave"})
    assert env.state.done == 1, "it was left in another room"
    assert way() == ([0.0, 1.0], 0)


def test_the_script_errs_as_often_as_it_is_told() -> None:
    """With chance .5 any of nine actions: about 8 of 9 of these are not the shortest way's."""
    world = begun(7, rooms=4, objects=4, length=8)
    request = Request(world.look()["hero"], "hero", np.random.default_rng(0))
    right = shortest(request)
    said = [shortest(request, errs=0.5) for _ in range(600)]
    assert 1 - 0.5 * 8 / 9 - 0.08 < said.count(right) / 600 < 1 - 0.5 * 8 / 9 + 0.08


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
