"""What holds for every native world."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import numpy as np
import pytest

from palaestra import envs
from palaestra.agents.scripted import random_legal
from palaestra.envs import ENVS
from palaestra.envs.worlds import GridWorld, forced, two_phase
from palaestra.envs.worlds.grid_world import derive
from palaestra.errors import EnvError, InputError
from palaestra.play.monte_carlo import Restartable, mc_value
from palaestra.testing.env import check_env

SETTINGS = [
    ("answers", {"right": [1, 2]}, True),
    ("assistance", {}, True),
    ("automation_grid", {}, True),
    ("backward", {"letters": 3, "longest": 3}, True),
    ("bargaining", {"discounts": None, "rounds": 3, "complete": False}, True),
    ("bargaining", {}, False),
    ("bertrand", {"rounds": 3}, False),
    ("bertrand", {"rounds": 3, "memory": False, "demand": "logit", "cost": 1, "prices": [1.4, 1.7, 2.0]}, False),
    ("commons", {"rounds": 3}, False),
    ("commons", {"inverse": True, "universal": True, "speakers": 2, "rounds": 3}, False),
    ("corridor", {}, False),
    ("desktop", {}, True),
    ("experiment", {"experiments": 2, "questions": 1, "particles": 100}, True),
    ("experiment", {"model": "discounting", "experiments": 3, "particles": 50, "regret": True}, True),
    ("explored_grid", {"test": "plan", "explore": 4}, True),
    ("explored_grid", {"test": "mask", "explore": 0, "history": False}, True),
    ("explored_grid", {"test": "change", "explore": 3, "worlds": 2}, True),
    ("graded_taps", {"longest": 3, "lucky": 0.5}, True),
    ("graph_game", {"problem": "matching", "words": 2}, True),
    ("graph_game", {"problem": "consensus", "family": "delaunay", "n": 5, "rounds": 2}, True),
    ("investigation", {"steps": 4}, True),
    ("investigation", {"steps": 4, "dense": True, "incidents": 3}, True),
    ("market", {"customers": 1}, True),
    ("market", {"search": "optimal", "patience": 0.7}, True),
    ("market", {"search": "filtered", "sellers": 2, "proposals": 1}, True),
    ("negotiation", {"values": None, "rounds": 3}, True),
    ("persuasion", {"rounds": 4, "memory": "all"}, True),
    ("profiled_routing", {"clients": 3}, True),
    ("profiled_routing", {"profile": "zones", "vehicles": 3, "copy": None, "keeps": "random"}, True),
    ("quest", {"objects": 2, "length": 3}, True),
    ("queue", {"fee": 100}, True),
    ("rendezvous", {"sight": 2}, True),
    ("rendezvous", {"walkers": 3, "cells": 5, "last": True}, True),
    ("repair", {}, True),
    ("answers", {}, True),
    ("corridor", {}, False),
    ("dial", {"horizon": 6}, False),
    ("errand_grid", {}, True),
    ("tool_steps", {}, True),
    ("dilemma", {"rounds": 3}, False),
    ("donor_game", {"rounds": 3}, True),
    ("donor_game", {"rounds": 3, "players": 4, "trace": 1, "punish": (0.1, 2.0)}, True),
    ("errands", {"experts": [[0.9, 0.1, 0.5]]}, False),
    ("errands", {"experts": [[0.9, 0.1, 0.5]], "tasks": 3}, False),
    ("grounding", {}, True),
    ("guardians", {}, True),
    ("hidden_roles", {"rounds": 2}, True),
    ("lattice", {"size": 3, "rounds": 2}, True),
    ("discs", {"walkers": 2, "steps": 2, "sensors": 2, "flicker": 1}, False),
    ("inquiry", {"values": True, "doubt": 0.5}, False),
    ("inquiry", {"early": False, "questions": 12, "turns": 4, "bits": 4}, False),
    ("jobs", {"broken": 3}, False),
    ("epidemic", {"number": 12, "horizon": 3}, True),
    ("epidemic", {"number": 10, "horizon": 3, "levels": 3}, True),
    ("kuramoto", {"number": 4, "horizon": 3}, True),
    ("tax_economy", {"years": 3, "workers": 6}, True),
    ("tax_economy", {"years": 3, "candidates": 2, "term": 2, "start": "saez"}, True),
    ("kuramoto", {"number": 3, "modes": 2}, True),
    ("landmarks", {}, True),
    ("places_grid", {"walkers": 2}, True),
    ("referential", {}, False),
    ("landmarks", {"shows": "own", "walkers": 1}, True),
    ("levels", {}, True),
    ("lock", {"locks": 5}, True),
    ("lookup", {}, False),
    ("memory_team", {}, False),
    ("routing", {"announced": True}, True),
    ("candidates", {"announced": True}, True),
    ("second_look", {}, True),
    ("shelf", {}, True),
    ("shelf", {"solo": True, "steps": 3}, True),
    ("sites", {"workers": 2, "sites": 3, "horizon": 4}, False),
    ("stage_games", {"rounds": 3}, False),
    ("skilled_subagents", {"needs": {"edit": 0.75, "test": 0.25, "plan": 0.0}, "members": 2}, False),
    ("subagents", {"size": 5, "good": [1]}, False),
    ("supervised_choice", {"pattern": "thirds", "audit": 0.5}, True),
    ("supervised_choice", {"history": 0}, False),
    ("team_builder", {}, True),
    ("threshold_game", {"players": 3, "needed": 2}, False),
    ("cases", {}, True),
    ("craft", {}, True),
    ("cups", {}, True),
    ("denoise", {}, True),
    ("discussion", {"critics": 2}, True),
    ("evidence_debate", {}, True),
    ("exam", {}, True),
    ("exchange", {}, True),
    ("gems", {}, True),
    ("goal_grid", {}, True),
    ("halves", {}, True),
    ("judging", {}, True),
    ("layers", {}, True),
    ("lexicon", {"masks": 2}, True),
    ("dossier", {}, True),
    ("nodes", {"nodes": 2}, True),
    ("opponents", {"rounds": 4}, True),
    ("traffic", {"horizon": 4, "drivers": 2}, True),
    ("trail", {}, True),
    ("off_switch", {}, True),
    ("off_switch", {"seat": True}, True),
    ("papers", {}, True),
    ("partner", {}, True),
    ("proactive", {}, True),
    ("phrases", {"longest": 4, "dead": 1, "errs": 0.1}, True),
    ("procedure", {"planners": 2, "executors": 2, "thoughts": 2}, True),
    ("pulls", {"pulls": 5}, False),
    ("rag", {"restricted": False}, True),
    ("refusals", {}, True),
    ("repository", {"trivial": 2}, True),
    ("reputation", {"encounters": 3}, True),
    ("reputation", {"encounters": 3, "direct": True, "selection": False, "visible": False}, True),
    ("retries", {}, False),
    ("ring_walkers", {"seats": 8}, True),
    ("review", {}, True),
    ("slips", {"slip": True}, True),
    ("slips", {"paths": 3}, True),
    ("stories", {}, False),
    ("walk", {}, True),
    ("wishes", {}, True),
    ("workshop", {}, True),
]


@pytest.mark.parametrize(
    ("name", "options", "varied"), SETTINGS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_it_keeps_the_protocol(name, options, varied):
    check_env(envs.make(f"native/{name}", **options), varied=varied, seeds=(0, 1, 2**64 - 2))


def test_every_world_is_tried():
    text = "".join(each.read_text() for each in Path(__file__).parent.glob("test_*.py"))
    tried = {name for name, _, _ in SETTINGS} | set(re.findall(r'"(?:native/)?(\w+)"', text))
    assert tried >= {name.removeprefix("native/") for name in ENVS if name.startswith("native/")}


@pytest.mark.parametrize("name", ["bargaining", "negotiation"])
def test_speech_ends_with_a_move(name):
    def speak(seen, rng):
        moves = seen.text.rsplit("one of: ", 1)[1].rstrip(".").split(", ")
        return f"Look,\nthis is it.\n{moves[rng.integers(len(moves))]}"

    check_env(envs.make(f"native/{name}", talk=True), play=speak, varied=False, seeds=(0, 1))


def test_what_is_said_is_heard_but_moves_nothing():
    env = envs.make("native/bargaining", talk=True)()
    env.reset(0)
    heard = env.step({"first": "accept\nor else!\nkeep 20"}).observations["second"].text
    assert "first: accept or else! / keep 20" in heard
    result = env.step({"second": "no keep 5\nACCEPT"})
    assert result.terminated
    assert result.rewards == {"first": 0.2, "second": 0.8}
    env = envs.make("native/persuasion", talk=True, rounds=1)()
    env.reset(0)
    assert "hears buy it now" in env.step({"seller": "buy it\nnow"}).observations["buyer"].text


def test_values_by_playing_on():
    """A uniform proposer's offers are accepted half of the time, then a counter-offer is: E = 1/4 (1 + 0.45)."""
    env = envs.make("native/bargaining")()
    assert isinstance(env, Restartable)
    env.reset(0)
    snapshot = env.snapshot()
    policy = random_legal()
    (value,) = mc_value(env, [snapshot], policy, np.random.default_rng(0), k=1500, agent="first")
    assert value == pytest.approx(0.25 * (1 + 0.45), abs=0.04)


def test_a_forced_action_changes_one_turn_only():
    plain = envs.make("native/bertrand", rounds=3)
    cut = forced(plain, "seller_0", 1, "price 11")
    check_env(cut, varied=False, illegal=False)
    found = []
    for factory in (plain, cut):
        env = factory()
        observations = env.reset(0)
        while observations:
            result = env.step(dict.fromkeys(observations, "price 15"))
            observations = result.observations
        found.append(result.info["prices"])
    assert found == [[[15.0] * 3] * 3, [[15.0] * 3, [11.0, 15.0, 15.0], [15.0] * 3]]
    with pytest.raises(InputError, match="did you mean 'seller_0'"):
        forced(plain, "seler_0", 0, "price 11")


def test_exploring_pays_nothing_and_the_test_is_reached_by_its_tool():
    env = two_phase(functools.partial(GridWorld, worlds=1), functools.partial(derive, test="mask"), explore=20)()
    first = env.reset(0)["explorer"]
    assert env.step({"explorer": "a"}).rewards == {}
    again = env.step({"explorer": "reset"}).observations["explorer"]
    assert again.text.splitlines()[-1] == first.text
    assert len(again.text.splitlines()) == 3, "what was seen and done stays readable"
    test = env.step({"explorer": "test"}).observations["explorer"]
    assert test.legal == ("option 1", "option 2", "option 3", "option 4")
    result = env.step({"explorer": "option 1"})
    assert result.terminated
    assert result.info["explored"] == 2
    assert result.info["resets"] == 1
    assert result.rewards["explorer"] in (0.0, 1.0)


def test_a_value_of_exploring_is_that_of_all_tests():
    env = envs.make("native/explored_grid", test="mask", explore=5, history=False)()
    env.reset(0)
    snapshot = env.snapshot()

    def test(seed):
        env.restore(snapshot, seed)
        return env.step({"explorer": "test"}).observations["explorer"].text

    assert test(None) == test(None)
    assert len({test(seed) for seed in range(5)}) == 5


def test_actions_of_the_wrong_agents_are_refused():
    env = envs.make("native/queue")()
    env.reset(0)
    with pytest.raises(EnvError, match="agents to act are"):
        env.step({"a": "pass"})


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("graph_game", {"problem": "colour"}, "did you mean 'colouring'"),
        ("graph_game", {"family": "rings"}, "did you mean 'ring'"),
        ("graph_game", {"n": 3}, "at least 4"),
        ("bargaining", {"discounts": (1.5, 0.5)}, r"in \(0, 1\]"),
        ("negotiation", {"rounds": 0}, "at least 1"),
        ("persuasion", {"memory": "statistic"}, "did you mean 'statistics'"),
        ("persuasion", {"q": 2.0}, r"in \[0, 1\]"),
        ("market", {"search": "lexical"}, "'lexical'"),
        ("market", {"patience": 0.0}, "patience"),
        ("bertrand", {"demand": "linear"}, "'linear'"),
        ("bertrand", {"sellers": 1}, "two sellers"),
        ("experiment", {"model": "dugong"}, "did you mean 'dugongs'"),
        ("explored_grid", {"test": "planning"}, "did you mean 'plan'"),
        ("explored_grid", {"explore": -1}, "0 or more"),
        ("automation_grid", {"levels": ["L5"]}, "L5"),
        ("desktop", {"instances": 0}, "at least 1"),
        ("graph_game", {"rounds": -1}, "rounds=-1"),
        ("graph_game", {"words": 0}, "words=0"),
        ("graph_game", {"graphs": 0}, "graphs=0"),
        ("bargaining", {"discounts": (0.9,)}, "two in"),
        ("bargaining", {"discounts": 0.9}, "two in"),
        ("negotiation", {"values": 1.0}, "expected two"),
        ("bertrand", {"prices": (10, 11)}, "two be above the cost 10"),
        ("bertrand", {"prices": (11, 12, 11)}, "must differ"),
        ("market", {"markups": [1, 1.0]}, "must differ"),
        ("market", {"markups": [-1]}, "at least 0"),
        ("queue", {"fee": -1}, "fee=-1"),
        ("experiment", {"experiments": 0}, "one of them 1"),
        ("experiment", {"particles": 0}, "particles=0"),
        ("explored_grid", {"size": 1}, "size=1"),
        ("explored_grid", {"worlds": 0}, "worlds=0"),
        ("automation_grid", {"levels": []}, "no level"),
        ("investigation", {"alerts": 1}, "alerts=1"),
        ("investigation", {"gamma": 2.0}, "gamma=2.0"),
    ],
)
def test_wrong_options_are_named(name, options, message):
    with pytest.raises(InputError, match=message):
        envs.make(f"native/{name}", **options)()
