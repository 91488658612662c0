"""Seats that speak for groups of a population."""

from __future__ import annotations

import functools

import pytest

from palaestra.envs.worlds import Epidemic, Kuramoto
from palaestra.errors import EnvError, InputError
from palaestra.teams import archetypes
from palaestra.testing.env import check_env

PEOPLE = functools.partial(Epidemic, number=40, horizon=4)


def test_it_keeps_the_protocol():
    check_env(archetypes(PEOPLE, by=["age"]))
    check_env(archetypes(functools.partial(Epidemic, number=20, horizon=3, levels=3), by=[], copies=2))


def test_seats_are_named_by_their_attributes():
    assert archetypes(PEOPLE, by=[])().agents == ("everybody",)
    assert archetypes(PEOPLE, by=["age", "job"], copies=2)().agents[:2] == ("0-17-school#0", "0-17-school#1")


def test_all_seats_of_members_are_paid_what_they_cost():
    env = archetypes(functools.partial(PEOPLE, infects=0.0, cost=0.5), by=["job"])()
    result = env.step(dict.fromkeys(env.reset(0), "1"))
    assert set(result.rewards.values()) == {-0.5}


def test_days_that_pass_without_a_question_are_paid_with_the_step():
    """Nothing changes, so nobody is asked again: six days at home cost .5 each."""
    still = functools.partial(Epidemic, number=40, horizon=6, infects=0.0, recovers=0.0, cost=0.5)
    env = archetypes(still, by=["job"])()
    result = env.step(dict.fromkeys(env.reset(0), "1"))
    assert set(result.rewards.values()) == {-3.0}
    assert (result.info["day"], result.terminated, result.observations) == (6, True, {})


def test_what_cannot_be_is_named():
    with pytest.raises(InputError, match="no columns of people"):
        archetypes(Kuramoto, by=[])
    with pytest.raises(InputError, match="unknown attribute 'agee'"):
        archetypes(PEOPLE, by=["agee"])
    for options in ({"by": "age"}, {"by": ["age"], "copies": 0}, {"by": ["age", "age"]}):
        with pytest.raises(InputError, match="list of different names"):
            archetypes(PEOPLE, **options)
    env = archetypes(PEOPLE, by=[])()
    env.reset(0)
    with pytest.raises(EnvError, match="the agents to act are"):
        env.step({"person_0": "1"})
