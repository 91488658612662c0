"""Several envs in one, each as often as its weight says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from palaestra.envs import make
from palaestra.envs.worlds.mixture import Mixture
from palaestra.errors import InputError
from palaestra.testing import check_env

ARMS: dict[str, Any] = {"make": "native/arms", "options": {"shows": {"good": [0.0, 1.0]}}}
LOCK: dict[str, Any] = {"make": "native/corridor"}


def test_it_is_an_env() -> None:
    parts = {"a": ARMS, "b": {"make": "native/arms", "weight": 2}}
    check_env(make("native/mixture", parts=parts), varied=False)


def test_shares_are_the_weights() -> None:
    env = Mixture({"a": {**ARMS, "weight": 0.5}, "b": {**ARMS, "weight": 0.25}, "c": {**ARMS, "weight": 0.25}})
    parts = []
    for seed in range(2000):
        env.reset(seed)
        parts.append(env.part)
        assert env.task.startswith(f"{env.part}: ")
    np.testing.assert_allclose([parts.count(name) / 2000 for name in "abc"], [0.5, 0.25, 0.25], atol=0.03)


def test_what_does_not_fit_is_named() -> None:
    for parts, said in (
        ({}, "empty"),
        ({"a": {**ARMS, "weight": 0}}, "positive"),
        ({"a": {**ARMS, "wieght": 2}}, "weight"),
        ({"a": {"weight": 2}}, "no 'make'"),
        ({"a": ARMS, "b": LOCK}, "agents"),
    ):
        with pytest.raises(InputError, match=said):
            Mixture(parts)


def test_parts_with_seats_of_their_own() -> None:
    env = Mixture({"a": ARMS, "b": LOCK}, own_seats=True)
    assert {agent.partition(".")[0] for agent in env.agents} == {"a", "b"}
    seen = env.reset(0)
    assert set(seen) <= {agent for agent in env.agents if agent.startswith(f"{env.part}.")}
    result = env.step({agent: each.legal[0] for agent, each in seen.items()})
    assert set(result.rewards) <= set(seen)
    assert set(result.info["valid"]) == set(seen)
    check_env(make("native/mixture", parts={"a": ARMS, "b": LOCK}, own_seats=True), varied=False)
