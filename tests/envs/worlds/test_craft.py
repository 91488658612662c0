"""What is remembered, what is told, what may be taken."""

from __future__ import annotations

import functools
import itertools

import pytest

from palaestra.envs.worlds.craft import KINDS, NEEDED, Craft
from palaestra.errors import InputError
from palaestra.foundation.archive import Entry, GoalMemory
from palaestra.testing.env import check_env


def steps(seed, **options):
    """To the diamond, of agents that go for what is needed next."""
    env = Craft(**options)
    seen = env.reset(seed)
    for step in itertools.count():
        if not seen:
            return step
        has = {agent: dict(part.split() for part in each.text.split(", ")) for agent, each in seen.items()}
        goals = {a: next((k for k in KINDS[:-1] if int(h[k]) < NEEDED[k]), "diamond") for a, h in has.items()}
        seen = env.step(goals).observations
    raise AssertionError


def test_memories_are_walked_from_the_long_term_goal_to_single_finds():
    graph = GoalMemory()
    for time, (key, goal) in enumerate([("a", "wood"), ("b", "stone"), ("c", "wood"), ("a", "stone")]):
        graph.add(Entry(key, goal, time=time), goal=goal, long_term="win")
    assert [each.key for each in graph.recall("wood")] == ["c"]
    assert [each.key for each in graph.recall("win")] == ["a", "c", "b"]
    assert [each.key for each in graph.recall("stone", k=1)] == ["a"]
    graph.drop("a")
    assert [each.key for each in graph.recall("stone")] == ["b"]
    assert graph.recall("gold") == []
    with pytest.raises(InputError, match="two names"):
        graph.add(Entry("d", ""), goal="win", long_term="all")


def test_a_team_that_tells_is_faster_than_one_and_than_one_that_does_not():
    alone, silent, told = (
        sum(steps(seed, **options) for seed in range(8)) for options in ({"agents": 1}, {"messages": ()}, {})
    )
    assert told < 0.75 * silent
    assert told < 0.75 * alone


def test_nothing_is_taken_before_what_it_needs():
    env = Craft(agents=1)
    seen = env.reset(0)
    while seen:
        seen = env.step({"agent-1": "stone"}).observations
    assert env.state.minds["agent-1"].has == dict.fromkeys(KINDS, 0)
    assert env.state.step == env.horizon


def test_messages_go_to_who_lacks_them():
    env = Craft(agents=3, messages=("inventory",))
    seen, left = env.reset(1), 16
    while seen:
        result = env.step(dict.fromkeys(seen, "wood"))
        seen, before = result.observations, left
        left = sum(kind == "wood" for kind in env.state.deposits.values())
        assert sum(result.info["told"].values()) == 2 * (before - left)
        assert {each.has["wood"] for each in env.state.minds.values()} == {16 - left}
    assert left < 16


def test_the_protocol_and_what_cannot_be_played():
    check_env(functools.partial(Craft, n=9, horizon=6))
    for options in ({"messages": ["claims"]}, {"agents": 0}, {"n": 5}):
        with pytest.raises(InputError, match="Craft"):
            Craft(**options)


def test_games_in_one_world_begin_alike_and_remember_only_if_consolidated() -> None:
    for consolidate in (True, False):
        env = Craft(games=2, horizon=3, consolidate=consolidate)
        env.reset(5)
        deposits = dict(env.state.deposits)
        places = {agent: mind.place for agent, mind in env.state.minds.items()}
        at_first = {agent: len(mind.memory.recall("a diamond")) for agent, mind in env.state.minds.items()}
        for _ in range(3):
            result = env.step(dict.fromkeys(env.agents, "wood"))
        assert "success" not in result.info
        assert result.info["game"] == 0
        assert env.state.game == 1
        assert env.state.deposits == deposits
        assert {agent: mind.place for agent, mind in env.state.minds.items()} == places
        now = {agent: len(mind.memory.recall("a diamond")) for agent, mind in env.state.minds.items()}
        assert (sum(now.values()) > sum(at_first.values())) == consolidate
        if not consolidate:
            assert now == at_first
        for _ in range(3):
            assert result.observations
            result = env.step(dict.fromkeys(env.agents, "wood"))
        assert not result.observations
        assert result.info["game"] == 1


def test_each_looks_in_a_part_of_its_own_first() -> None:
    """Four agents in the middle, who know nothing, go to four quarters if they say so; else to one place."""
    for messages, places in ((("claim",), 4), ((), 1)):
        env = Craft(agents=4, messages=messages)
        env.reset(0)
        for mind in env.state.minds.values():
            mind.place, mind.seen[:], mind.memory = (8, 8), False, GoalMemory()
        targets = [env.target(agent, "wood") for agent in env.agents]
        assert len({(row > 7, column > 7) for row, column in targets}) == places
