from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

pytest.importorskip("momaland")

import palaestra as pa
from palaestra.agents.scripted import random_legal
from palaestra.envs import make
from palaestra.envs.momaland import vector_returns
from palaestra.envs.worlds.exact.objectives import beach_capacity
from palaestra.errors import InputError, MissingExtraError
from palaestra.testing.env import check_env

SMALL = {"num_agents": 6, "sections": 3, "capacity": 2}


@pytest.mark.parametrize(
    ("game", "options", "varied"),
    [
        ("beach", {**SMALL, "num_timesteps": 2}, True),
        ("beach", {**SMALL, "utility": "product"}, True),
        ("gem_mining", {"num_agents": 4}, False),
        ("item_gathering", {"num_timesteps": 5}, False),
        ("connect4", {}, False),
    ],
)
def test_games_keep_the_protocol(game, options, varied):
    check_env(make(f"momaland/{game}", **options), varied=varied, seeds=(0, 2**64 - 2))


def test_the_beach_pays_what_its_formula_says():
    env = make("momaland/beach", **SMALL, weights=[1, 0])()
    seen = env.reset(0)
    result = env.step(dict.fromkeys(seen, 1))
    places = {agent: int(observation.array[1]) for agent, observation in seen.items()}
    for agent, place in places.items():
        people = list(places.values()).count(place)
        assert result.rewards[agent] == pytest.approx(float(beach_capacity(np.array(people), 2)), abs=1e-6)
        assert result.info["vector"][agent][0] == pytest.approx(result.rewards[agent])
    assert result.terminated
    assert not result.truncated, "momaland 0.2.0 returns both flags in the other order"


def test_a_utility_is_paid_at_the_end_of_the_whole_episode():
    linear, squares = (make("momaland/beach", **SMALL, utility=u, weights=[0.5, 0.5])() for u in ("linear", "squares"))
    seen = linear.reset(1)
    vectors = linear.step(dict.fromkeys(seen, 0)).info["vector"]
    squares.reset(1)
    paid = squares.step(dict.fromkeys(seen, 0)).rewards
    assert paid == pytest.approx({agent: 0.5 * sum(x**2 for x in v) for agent, v in vectors.items()})


def test_weights_may_differ_by_agent():
    weights = {f"agent_{n}": [n % 2, 1 - n % 2] for n in range(6)}
    env = make("momaland/beach", **SMALL, weights=weights)()
    result = env.step(dict.fromkeys(env.reset(0), 1))
    for agent, vector in result.info["vector"].items():
        assert result.rewards[agent] == pytest.approx(float(np.dot(weights[agent], vector)))


def test_vectors_survive_in_the_table():
    factory = make("momaland/beach", **SMALL, num_timesteps=2, weights=[1, 0])
    team = pa.Team(dict.fromkeys(factory().agents, random_legal()))
    turns = pa.rollout(factory, team, groups=2, group_size=3, seed=0)
    found = vector_returns(turns)
    assert len(found) == 2 * 3 * 6
    paid = turns.frame.with_columns(pl.col("agent").cast(pl.String)).group_by("group", "episode", "agent")
    both = found.join(paid.agg(pl.col("reward").sum()), on=["group", "episode", "agent"])
    np.testing.assert_allclose(both["returns"].list.get(0).to_numpy(), both["reward"].to_numpy(), atol=1e-6)
    assert json.loads(turns["metadata"][0])["vector"]["agent_0"]


@pytest.mark.parametrize(
    ("game", "options", "message"),
    [
        ("beech", {}, "did you mean 'beach'"),
        ("beach", {"utility": "sqares"}, "did you mean 'squares'"),
        ("beach", {"weights": [1, 2, 3]}, "expected 2 finite numbers"),
        ("beach", {"sectoins": 3}, "sectoins"),
    ],
)
def test_what_is_wrong_is_named(game, options, message):
    with pytest.raises(InputError, match=message):
        make(f"momaland/{game}", **options)


def test_its_absence_is_one_line(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"palaestra\[momaland\]"):
        make("momaland/beach")
