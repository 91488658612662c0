from __future__ import annotations

import functools

import numpy as np
import pytest

from palaestra.envs.worlds import Routing
from palaestra.errors import InputError
from palaestra.testing.env import check_env


def test_the_protocol_holds():
    check_env(Routing)
    check_env(functools.partial(Routing, announced=True))


def share(env, worker, *, shifted, kind=0, n=1500):
    """How often a worker answers a kind rightly."""
    right = []
    seed = 0
    while len(right) < n:
        seed += 4
        env.reset(seed | (2 if shifted else 0))
        if env.state.kind == kind:
            right.append(env.step({"router": worker}).info["answered"])
    return np.mean(right)


def test_the_best_worker_loses_its_skill_and_only_that():
    env = Routing()
    assert share(env, 0, shifted=False) == pytest.approx(0.9, abs=0.04)
    assert share(env, 0, shifted=True) == pytest.approx(0.1, abs=0.04)
    assert share(env, 1, shifted=True) == pytest.approx(0.8, abs=0.04)
    assert share(env, 0, shifted=True, kind=1) == pytest.approx(0.3, abs=0.04)


def test_the_price_is_paid_and_the_shock_is_told_only_if_asked():
    env = Routing(weight=0.5)
    env.reset(2)
    result = env.step({"router": 0})
    assert result.rewards["router"] == pytest.approx(result.info["answered"] - 0.5)
    assert Routing().reset(2)["router"].array.shape == (2,)
    told = Routing(announced=True)
    assert told.reset(2)["router"].array[2] == 1
    assert told.reset(4)["router"].array[2] == 0
    with pytest.raises(InputError, match="a price for each"):
        Routing(prices=[1.0])
