"""Oscillators that turn at once."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.envs.worlds import Kuramoto
from palaestra.envs.worlds.kuramoto import order, wrapped
from palaestra.errors import InputError


def test_the_coupling_alone_brings_them_together():
    env = Kuramoto(number=40, horizon=200, coupling=0.1, drift=0.0)
    seen = env.reset(3)
    while seen:
        result = env.step(dict.fromkeys(seen, "stay"))
        seen = result.observations
    assert result.info["order"] > 0.99
    assert result.info["success"]


def test_a_turn_is_speed_and_the_reward_is_what_order_gains():
    env = Kuramoto(number=3, coupling=0.0, drift=0.0, noise=0.0)
    seen = env.reset(0)
    before = env.states()[:, 0]
    np.testing.assert_allclose([each.array[0] for each in seen.values()], before, atol=1e-6)
    result = env.step(dict(zip(env.agents, ("back", "stay", "on"), strict=True)))
    np.testing.assert_allclose(env.states()[:, 0], wrapped(before + np.array([-0.12, 0.0, 0.12])))
    assert result.rewards["oscillator_0"] == order(env.states()[:, 0]) - order(before)


def test_two_modes_are_opposite_and_one_is_larger():
    env = Kuramoto(number=4000, modes=2, spread=0.05)
    env.reset(1)
    assert 0.4 < order(env.states()[:, 0]) < 0.55
    with pytest.raises(InputError, match="modes=3"):
        Kuramoto(modes=3)
