"""Players of hidden roles: what is right, and what it pays."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.envs.worlds import HiddenRoles
from palaestra.errors import InputError


def test_the_right_action_depends_on_what_is_seen_and_on_the_role():
    env = HiddenRoles(players=4, roles=2, rounds=1, scales=[1, 2, 3, 4])
    seen = env.reset(3)
    best = [int((each.array @ env.scores).argmax()) for each in seen.values()]
    right = [(action + 2 * (number % 2)) % 4 for number, action in enumerate(best)]
    result = env.step(dict(zip(env.agents, right, strict=True)))
    assert list(result.rewards.values()) == [1, 2, 3, 4]
    assert result.info["success"] is True
    assert result.info["role"] == {"player_0": 0, "player_1": 1, "player_2": 0, "player_3": 1}
    env.reset(3)
    wrong = env.step({agent: (action + 1) % 4 for agent, action in zip(env.agents, right, strict=True)})
    assert not any(wrong.rewards.values())
    assert wrong.info["success"] is False


def test_a_world_is_the_same_in_every_episode():
    assert np.array_equal(HiddenRoles(world=1).scores, HiddenRoles(world=1).scores)
    assert not np.array_equal(HiddenRoles(world=1).scores, HiddenRoles(world=2).scores)


def test_what_units_see_is_spread_by_one_and_a_half():
    weights, offsets = HiddenRoles(features=50, units=50).bends
    assert (weights.std(), offsets.std()) == pytest.approx((1.5, 1.0), abs=0.3)


@pytest.mark.parametrize("options", [{"players": 0}, {"roles": 5}, {"scales": [1.0]}])
def test_numbers_out_of_range_are_named(options):
    with pytest.raises(InputError, match="HiddenRoles"):
        HiddenRoles(**options)
