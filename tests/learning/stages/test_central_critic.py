"""Values from what all agents see."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.agents import Team, random_legal
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.stages import Context
from palaestra.learning.stages.central_critic import central_critic, joint_arrays
from palaestra.learning.stages.critic import critic
from palaestra.play.executors import Local


def table(seed=0, episodes=100):
    """Each of two agents sees a coin; one is paid for both heads, so neither knows alone what a turn is worth."""
    coins = np.random.default_rng(seed).integers(2, size=(episodes, 2)).astype(float)
    return Turns(
        pl.DataFrame({
            "run": "0", "iteration": 0, "group": np.repeat(np.arange(episodes), 2), "episode": 0, "turn": 0,
            "truncated": False,
            "agent": ["b", "a"] * episodes, "policy": "p", "observation": "",
            "features": [[float(coin)] for pair in coins for coin in pair[::-1]],
            "reward": np.repeat(10.0 * coins.prod(1), 2),
        })
    )  # fmt: skip


def context(seed=0):
    return Context(np.random.default_rng(seed), 1, lambda: None, Team(a=random_legal()), Local(), seed=seed)


def error(stage):
    """Mean squared error of values after it has learned from a few tables."""
    for place in range(4):
        stage(table(place), context(place))
    turns = stage(table(9), context(9))
    return float(((turns["value"] - turns["reward"]) ** 2).mean())


def test_it_knows_what_no_agent_can_see_alone():
    assert error(central_critic(lr=1e-2, hidden=(16,), batch=128)) < 0.5
    assert error(critic("network", gamma=0.99, lr=1e-2, hidden=(16,))) > 5, "half of the time the other coin decides"


def test_arrays_of_a_turn_stand_side_by_side_in_the_rows_order():
    turns = Turns(
        pl.DataFrame({
            "group": [0, 0, 1, 1], "episode": 0, "turn": 0, "agent": ["b", "a", "a", "b"],
            "features": [[1.0], [2.0, 3.0], [4.0, 5.0], [6.0]],
        })
    )  # fmt: skip
    assert joint_arrays(turns).tolist() == [[2, 3, 1, 0, 1], [2, 3, 1, 1, 0], [4, 5, 6, 1, 0], [4, 5, 6, 0, 1]]


def test_values_are_filled_in_before_they_are_learned():
    stage = central_critic()
    assert (stage(table(), context())["value"] == 0).all()


def test_a_resumed_critic_is_the_same():
    whole, half, fresh = central_critic(), central_critic(), central_critic()
    half(table(0), context(0))
    fresh.load_state_dict(half.state_dict())
    whole(table(0), context(0))
    assert fresh(table(1), context(1))["value"].equals(whole(table(1), context(1))["value"])


def test_scales_do_not_matter():
    """Returns a thousand times as large are learned as well: targets are scaled."""
    stage = central_critic(lr=1e-2, hidden=(16,), batch=128)
    for place in range(6):
        turns = table(place)
        turns = turns.with_column(reward=1000 * turns["reward"])
        found = stage(turns, context(place))
    assert float(((found["value"] - found["reward"]) ** 2).mean()) < 0.5e6


def test_who_acts_must_be_the_same_in_every_turn():
    with pytest.raises(InputError, match="all act at once"):
        central_critic()(Turns(table().frame[1:]), context())
    with pytest.raises(InputError, match="no array"):
        joint_arrays(table().with_column(features=pl.Series([None] * 200, dtype=pl.List(pl.Float64))))
    with pytest.raises(InputError, match="steps=0"):
        central_critic(steps=0)


def test_it_counts_number_mean_and_spread_of_all_returns_so_far():
    """Episodes of one turn: the return is the reward."""
    stage, tables = central_critic(), [table(place, episodes=10 + 5 * place) for place in range(3)]
    for place, turns in enumerate(tables):
        stage(turns, context(place))
    every = np.concatenate([turns["reward"].to_numpy() for turns in tables])
    expected = [len(every), every.mean(), ((every - every.mean()) ** 2).sum()]
    assert stage.state_dict()["moments"].tolist() == pytest.approx(expected)
