"""A central seat that tells each agent something."""

from __future__ import annotations

import functools

import numpy as np
import polars as pl
import pytest

from palaestra.agents import Team
from palaestra.agents.scripted import random_legal
from palaestra.envs.conversations import WORDS
from palaestra.envs.worlds import Corridor, Dilemma, Landmarks, Persuasion
from palaestra.errors import EnvError, InputError
from palaestra.play.rollout import rollout
from palaestra.teams import coordinator
from palaestra.testing.env import check_env

SMALL = functools.partial(Landmarks, walkers=2, side=3, horizon=3)


def test_it_keeps_the_protocol():
    check_env(coordinator(SMALL))
    check_env(coordinator(Corridor, 2, noise=0.5), varied=False)
    check_env(coordinator(functools.partial(Persuasion, rounds=2)))


def test_the_seats_speak_first_and_everybody_is_paid_as_documented():
    team = Team(dict.fromkeys(coordinator(SMALL)().agents, random_legal()))
    rows = rollout(coordinator(SMALL), team, groups=6, seed=2).frame.sort("group", "turn")
    speaks = rows["agent"].cast(str).str.starts_with("coordinator")
    assert (speaks == (rows["turn"] % 2 == 0)).all()
    assert rows.filter(speaks)["told"].null_count() == speaks.sum()
    walkers = rows.filter(~speaks).group_by("group", turn=pl.col("turn") - 1).agg(mean=pl.col("reward").mean())
    joined = rows.filter(speaks).join(walkers, on=["group", "turn"])
    np.testing.assert_allclose(joined["reward"], joined["mean"])


def test_where_agents_take_turns_the_latest_view_of_each_is_known_and_all_share_the_pay():
    class InTurn(Landmarks):
        def look(self):
            seen, name = super().look(), f"walker_{self.state.steps % 2}"
            return {name: seen[name]} if seen else {}

    env = coordinator(functools.partial(InTurn, walkers=2, horizon=4))()
    (first,) = env.reset(0).values()
    assert not first.array[4:8].any(), "nobody has seen the second one yet"
    env.step({"coordinator-walker_0": "message 0"})
    result = env.step({"walker_0": "up"})
    assert result.rewards == {"walker_0": 1 / 3, "walker_1": 0.0, "coordinator-walker_0": 1 / 6}
    (second,) = result.observations.values()
    np.testing.assert_array_equal(second.array[4:8], first.array[:4])


def test_a_chat_model_reads_its_message_last():
    env = coordinator(Dilemma)()
    seen = env.reset(0)
    local = env.step(dict.fromkeys(seen, "message 3")).observations["first"]
    assert str(local.conversation(WORDS)[-1]["content"]).endswith("the coordinator says: message 3")
    assert len(local.conversation(WORDS)) == len(Dilemma().reset(0)["first"].conversation(WORDS))


def test_what_cannot_be_read_arrives_as_any_message():
    env = coordinator(SMALL, 2)()
    result = env.step(dict.fromkeys(env.reset(0), "what?"))
    assert set(result.info["valid"].values()) == {False}
    assert result.observations.keys() == {"walker_0", "walker_1"}


def test_what_cannot_be_is_named():
    for options in ({"messages": 0}, {"noise": 1.5}, {"seat": " "}):
        with pytest.raises(InputError, match="coordinator"):
            coordinator(SMALL, **options)
    with pytest.raises(InputError, match="has an agent 'coordinator-walker_0' already"):
        coordinator(coordinator(SMALL), seat="coordinator")
    env = coordinator(SMALL)()
    env.reset(0)
    with pytest.raises(EnvError, match="agents to act are"):
        env.step({"walker_0": "up", "walker_1": "up"})
