"""More or fewer walkers on a ring, and whom one must go to."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.envs.worlds import RingWalkers
from palaestra.errors import InputError


def stood(places, rule, **options):
    """A ring on which the walkers stand on these cells."""
    env = RingWalkers(sizes=[len(places)], rules={str(len(places)): rule}, **options)
    env.reset(0)
    env.state = np.array(places)
    env._turn = env._look()
    return env


@pytest.mark.parametrize(("rule", "steps"), [("right", [3, 2, 5]), ("left", [5, 7, 8]), ("far", [5, 7, 5])])
def test_whom_one_must_go_to(rule, steps):
    env = stood([0, 3, 5], rule)
    assert env.targets().tolist() == steps
    result = env.step(dict(zip(env.agents, map(str, steps), strict=True)))
    assert result.info["reached"] == dict.fromkeys(env.agents, True)
    assert result.terminated
    assert result.info["success"] is (rule != "far"), "two of three go to the same cell"
    paid = {"far": [1.0, 0.5, 0.5]}.get(rule, [1.0] * 3)
    assert list(result.rewards.values()) == paid


def test_of_two_that_are_equally_far_the_right_one_matters():
    assert stood([0, 3, 7], "far").targets()[0] == 3
    assert stood([0, 3, 7], "far", cells=10).targets().tolist() == [3, 4, 6]


def test_who_is_wrong_or_says_no_number_is_paid_nothing():
    env = stood([0, 3], "right")
    result = env.step({"walker_0": "4", "walker_1": "over there"})
    assert list(result.rewards.values()) == [0.0, 0.0]
    assert result.info["valid"] == {"walker_0": True, "walker_1": False}
    assert not result.info["success"]


def test_the_array_holds_the_size_and_the_others():
    env = stood([0, 5], "right", seats=3)
    seen = env.look()
    assert list(seen) == ["walker_0", "walker_1"]
    np.testing.assert_allclose(seen["walker_0"].array, [0, 1, 0, 1, 0, -1, 0, 0, 0], atol=1e-6)


def test_sizes_come_equally_often():
    env = RingWalkers(seats=8)
    sizes = [len(env.reset(seed)) for seed in range(600)]
    assert set(sizes) == {3, 4, 6}
    assert min(np.bincount(sizes)[[3, 4, 6]]) > 160


def test_what_is_no_ring_is_refused():
    for options in ({"sizes": []}, {"sizes": [1]}, {"sizes": [7]}, {"seats": 3}, {"cells": 5}, {"rules": {3: "up"}}):
        with pytest.raises(InputError, match="RingWalkers"):
            RingWalkers(**options)
