from __future__ import annotations

import functools

import pytest

from palaestra.envs.worlds import SubAgents
from palaestra.errors import InputError
from palaestra.testing.env import check_env

PRICES = [3.0, 2.0, 1.0, 0.5]


def staffed(*names):
    env = SubAgents(size=4, good=(0,), members=3, prices=PRICES, budget=4.0)
    seen, free = env.reset(0), []
    for name in names:
        free.append(seen["staff"].mask.tolist())
        result = env.step({"staff": f"sub-agent {name}"})
        seen = result.observations
    return free, result


def test_who_does_not_fit_cannot_be_chosen_and_the_team_plays_when_nobody_fits():
    free, result = staffed(0, 2)
    assert free == [[True] * 4, [False, False, True, True]]
    assert result.terminated  # 4 are spent, and there are two of three members
    assert result.info["price"] == 1.0
    free, result = staffed(3, 2, 1)
    assert free[1:] == [[True, True, True, False], [False, True, False, False]]
    assert result.terminated


def test_it_keeps_the_protocol_and_names_what_is_wrong():
    check_env(functools.partial(SubAgents, size=4, good=(0,), prices=PRICES, budget=2.0), varied=False)
    for prices, budget in (([1.0], 4.0), (PRICES, 0.1), ([0.0, 1.0, 1.0, 1.0], 4.0)):
        with pytest.raises(InputError, match="one above 0 for each"):
            SubAgents(size=4, good=(0,), prices=prices, budget=budget)
