"""Gymnasium environments of several agents, level-based foraging among them."""

from __future__ import annotations

import numpy as np
import pytest

gym = pytest.importorskip("gymnasium")
pytest.importorskip("lbforaging")

from palaestra.envs import make  # noqa: E402
from palaestra.envs.gymnasium import gymnasium  # noqa: E402
from palaestra.errors import InputError  # noqa: E402
from palaestra.testing.env import check_env  # noqa: E402

NAME = "lbforaging:Foraging-5x5-2p-1f-v3"


def test_foraging_keeps_the_protocol():
    check_env(gymnasium(NAME))


def test_it_is_the_same_environment_as_gymnasiums():
    env = make(NAME.replace(":", "/"))()
    rng = np.random.default_rng(0)
    assert env.agents == ("player_0", "player_1")
    for seed in range(2):
        raw = gym.make(NAME, disable_env_checker=True)  # anew: its start depends on how the last episode ended
        seen, (values, _) = env.reset(seed), raw.reset(seed=seed)
        for _ in range(200):
            for agent, value in zip(env.agents, values, strict=True):
                np.testing.assert_array_equal(seen[agent].array, value)
            actions = rng.integers(6, size=2).tolist()
            values, rewards, over, cut, _ = raw.step(tuple(actions))
            result = env.step(dict(zip(env.agents, actions, strict=True)))
            assert list(result.rewards.values()) == rewards
            assert (result.terminated, result.truncated) == (over, cut)
            if over or cut:
                break
            seen = result.observations


def test_names_of_actions_are_those_of_one_agent():
    with pytest.raises(InputError, match="several"):
        gymnasium(NAME, actions=["up", "down"])
    with pytest.raises(InputError, match="no env"):
        gymnasium("lbforaging:Foraging-5x5-2p-1f-v33")


def test_particle_environments_are_found_in_their_own_package():
    pytest.importorskip("mpe2")
    check_env(make("pettingzoo/mpe.simple_spread_v3", max_cycles=5))
    with pytest.raises(InputError, match="simple_spread_v3"):
        make("pettingzoo/mpe.simple_spred_v3")
