"""A gate between agents that act by themselves and a seat that acts for all."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest

from palaestra.envs.worlds import Landmarks, StageGames
from palaestra.errors import EnvError, InputError
from palaestra.teams import switching
from palaestra.testing.env import check_env

GAMES = functools.partial(StageGames, rounds=3)


def test_it_keeps_the_protocol():
    check_env(switching(GAMES, 0.2, budget=1), varied=False)
    check_env(switching(functools.partial(Landmarks, walkers=2, side=3, horizon=2)))


def test_arrays_of_all_and_what_is_left():
    env = switching(functools.partial(Landmarks, walkers=2, side=3), budget=4)()
    seen = env.reset(0)["gate"]
    plain = Landmarks(walkers=2, side=3).reset(0)
    np.testing.assert_array_equal(seen.array, [*plain["walker_0"].array, *plain["walker_1"].array, 1.0])
    env.step({"gate": "central"})
    result = env.step({"central": "up & left"})
    assert result.observations["gate"].array[-1] == 0.75
    assert result.info["found"].keys() == {"central"}
    assert result.rewards.keys() == {"gate", "central"}


def test_one_mode_alone_and_actions_that_are_none():
    env = switching(GAMES, only="central")()
    assert env.reset(0)["gate"].legal == ("central",)
    result = env.step({"gate": "independent"})
    assert result.observations.keys() == {"central"}
    assert result.info["valid"] == {"gate": False}
    assert env.step({"central": "nonsense"}).info["valid"] == {"central": False}


def test_a_gate_that_says_nothing_leaves_the_agents_alone_and_calls_begin_anew():
    env = switching(GAMES, budget=2)()
    env.reset(0)
    assert env.step({"gate": "neither"}).observations.keys() == {"player_0", "player_1"}
    for seed in (0, 1):
        env.reset(seed)
        env.step({"gate": "central"})
        assert env.step({"central": "move 0 & move 0"}).info["calls"] == 1


def test_a_joint_action_is_legal_if_all_its_parts_are():
    class Masked(StageGames):
        def look(self):
            allowed = {"player_0": [True, False, True], "player_1": [True, True, False]}
            return {who: dataclasses.replace(x, mask=np.array(allowed[who])) for who, x in super().look().items()}

    env = switching(Masked)()
    env.reset(0)
    seen = env.step({"gate": "central"}).observations["central"]
    assert seen.legal == ("move 0 & move 0", "move 0 & move 1", "move 2 & move 0", "move 2 & move 1")


def test_what_cannot_be_is_named():
    for options, complaint in (
        ({"cost": -1.0}, "cost=-1.0"), ({"budget": -1}, "budget=-1"), ({"only": "both"}, "only='both'"),
        ({"gate": "player_0"}, "'player_0' must be a new name"), ({"gate": "central"}, "'central' must be a new name"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=complaint):
            switching(GAMES, **options)
    env = switching(GAMES)()
    env.reset(0)
    with pytest.raises(EnvError, match="agents to act are"):
        env.step({"central": 0})
