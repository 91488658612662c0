"""An upper seat that sees a swarm as a distribution and chooses the rule of all."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from palaestra.envs.worlds import Kuramoto, Landmarks, StageGames
from palaestra.errors import EnvError, InputError
from palaestra.teams import kernel_features, mean_field
from palaestra.teams.mean_field import kernel_weights
from palaestra.testing.env import check_env

SWARM = functools.partial(Kuramoto, number=6, horizon=2)


def test_it_keeps_the_protocol():
    check_env(mean_field(SWARM))


def test_any_env_of_agents_that_are_alike():
    env = mean_field(functools.partial(Landmarks, side=3, horizon=2), centres=2)()
    seen = env.reset(0)["swarm"].array
    assert seen.shape == (2**4,)
    np.testing.assert_allclose(seen.sum(), 1.0, atol=1e-6)
    result = env.step({"swarm": " ".join(["3"] * 16)})
    assert result.info["found"] in (0.0, 1 / 3, 2 / 3, 1.0)
    assert env.step({"swarm": " ".join(["0"] * 16)}).info["success"] in (True, False)


def test_kernels_go_round_the_circle():
    centres = np.array([[-0.75], [0.75]])
    straight, round_ = (kernel_weights(np.array([[-1.0]]), centres, 0.2, period) for period in (None, 2.0))
    assert straight[0, 0] > 0.99
    np.testing.assert_allclose(round_, 0.5)
    np.testing.assert_allclose(kernel_features(np.array([[-1.0], [1.0]]), centres, 0.2, 2.0), 0.5)


def test_actions_that_are_none():
    env = mean_field(SWARM)()
    env.reset(0)
    for action in ("", "0 1", "0 1 2 0 1 2 0 3", "0 1 2 0 1 2 0 -1", 3):
        assert env.rule(action) is None
    assert env.step({"swarm": "nothing"}).info["valid"] == {"swarm": False}
    with pytest.raises(EnvError, match="the agent to act is swarm"):
        env.step({"oscillator_0": "on"})


def test_centres_reach_from_one_end_to_the_other():
    assert mean_field(functools.partial(Landmarks, side=3), centres=3, high=2.0)().line == pytest.approx([-1, 0.5, 2])
    assert mean_field(SWARM, centres=4)().line == pytest.approx([-0.75, -0.25, 0.25, 0.75]), "the ends are one place"


def test_what_cannot_be_is_named():
    for options, complaint in (
        ({"centres": 1}, "centres=1"), ({"bandwidth": 0.0}, "bandwidth=0.0"), ({"high": -1.0}, "above low"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=complaint):
            mean_field(SWARM, **options)
    with pytest.raises(EnvError, match="choices and arrays"):
        mean_field(StageGames)().reset(0)
