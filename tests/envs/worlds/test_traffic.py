"""Drivers on a ring who cannot pass each other, and somebody who crosses."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.envs import make
from palaestra.envs.worlds.traffic import advances
from palaestra.errors import InputError


def test_drivers_never_share_a_cell():
    env = make("native/traffic", drivers=5, cells=8, horizon=40)()
    for seed in range(5):
        env.reset(seed)
        for _ in range(40):
            places = env.state.places[env.state.places >= 0]
            assert len(set(places.tolist())) == len(places)
            env.step({"walker_0": 0})


def test_a_lone_driver_goes_as_it_wants():
    np.testing.assert_array_equal(advances(np.array([8]), np.array([2]), 9), [2])


def test_crossing_is_paid_where_nobody_comes():
    env = make("native/traffic", drivers=1, cells=6, habit=1.0, missing=0.0, mixtures=["calm"], horizon=10)()
    seen = env.reset(0)["walker_0"]
    assert seen.choices == ("wait", "cross at 0", "cross at 3")
    for _ in range(10):
        place = int(env.state.places[0])
        result = env.step({"walker_0": 1})
        assert result.rewards["walker_0"] == pytest.approx(-0.3 if (place + 1) % 6 == 0 else 0.1)
    assert result.info["hidden"] == "calm"
    assert result.info["success"] == (result.info["hits"]["walker_0"] == 0)


def test_a_slot_that_nobody_has_is_zero():
    env = make("native/traffic", drivers=2, cells=6, missing=1.0)()
    array = env.reset(0)["walker_0"].array
    assert array[:6].sum() == 1
    assert array[12] == 1
    assert not array[6:12].any()
    assert not array[15:].any()


@pytest.mark.parametrize("options", [{"cells": 3}, {"habit": 0.1}, {"mixtures": ["calm"]}, {"missing": 2}])
def test_options_out_of_range_are_named(options):
    with pytest.raises(InputError, match=next(iter(options))):
        make("native/traffic", **options)()


def test_a_temperament_that_is_none_is_named():
    with pytest.raises(InputError, match="did you mean 'calm'"):
        make("native/traffic", drivers=1, mixtures=["clam"])()
