"""Vehicles with preferences, and envs that are told how likely a choice was."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.agents import TabularPolicy, Team
from palaestra.envs.protocol import LikelyAction
from palaestra.envs.worlds import ProfiledRouting
from palaestra.envs.worlds.exact.profiled_routing import best_routes
from palaestra.errors import InputError
from palaestra.play.rollout import rollout


class Watched(ProfiledRouting):
    """Keeps what it is given."""

    given_actions: list

    def step(self, actions):
        Watched.given_actions = [*getattr(Watched, "given_actions", []), *actions.values()]
        return super().step(actions)


def test_only_envs_that_weigh_are_told_log_probabilities():
    team = Team(vehicle_0=TabularPolicy(4, name="a"), vehicle_1=TabularPolicy(4, name="b"))
    for weighs in (True, False):
        Watched.weighs, Watched.given_actions = weighs, []
        rows = rollout(lambda: Watched(clients=3), team, groups=4, seed=0).frame
        assert rows["error"].null_count() == len(rows)
        assert {isinstance(each, LikelyAction) for each in Watched.given_actions} == {weighs}
        if weighs:
            told = sorted(each.logprob for each in Watched.given_actions)
            np.testing.assert_allclose(told, sorted(rows["logprobs"].explode().to_list()), rtol=1e-6)


@pytest.mark.parametrize(("keeps", "goes"), [("first", 0), ("nearest", 1), ("likeliest", 1)])
def test_who_goes_to_a_client_that_both_choose(keeps, goes):
    given = {"xy": [[0, 0], [1, 0], [2, 0], [3, 0]], "demands": [1, 1, 1], "profile": [[0.0] * 3] * 2}
    env = ProfiledRouting(given=given, capacity=5, keeps=keeps)
    env.reset(0)
    env.step({"vehicle_0": 1, "vehicle_1": 2})
    actions = {"vehicle_0": LikelyAction(3, -1.0), "vehicle_1": LikelyAction(3, -0.5)}
    result = env.step(actions)
    assert result.info["replaced"] == {f"vehicle_{k}": k != goes for k in range(2)}
    assert result.info["served"][f"vehicle_{goes}"] == 3


def test_blocks_hold_what_is_there():
    env = ProfiledRouting(vehicles=(1, 2), clients=(1, 3), sight="team", capacity=20)
    for seed in range(12):
        seen = env.reset(seed)
        state = env.state
        array = seen["vehicle_0"].array.reshape(2, -1)
        choices = array[:, 4:].reshape(2, 4, 6)
        assert (array[:, 0] > 0).tolist() == [True, state.vehicles == 2]
        assert (choices[0, 1:, 0] > 0).tolist() == state.open.tolist()
        assert not choices[0, 1:][~state.open].any()
        way = np.linalg.norm(state.xy - state.xy[0], axis=1)
        np.testing.assert_allclose(choices[0, 1:, 5], np.where(state.open, way[1:], 0), atol=1e-6)
        if state.vehicles == 2:
            assert (seen["vehicle_1"].array.reshape(2, -1) == array[::-1]).all()


def test_nobody_can_serve_what_is_too_heavy():
    assert best_routes(np.zeros((2, 2)), np.array([3.0]), np.array([[1.0]]), 2.0) == -np.inf
    for options in ({"clients": 0}, {"demands": (1, 30)}, {"copy": 8}, {"keeps": "last"}, {"sight": "far"}):
        with pytest.raises(InputError, match="ProfiledRouting"):
            ProfiledRouting(**options)
    with pytest.raises(InputError, match="given needs"):
        ProfiledRouting(given={"xy": [[0, 0]], "demands": [1], "profile": [[1.0]]})


def test_the_best_route_is_as_long_as_its_legs():
    """From the depot at (1, 1) to (4, 5) and (1, 5) and back: 5 + 3 + 4 = 12."""
    xy, demands = np.array([[1.0, 1.0], [4.0, 5.0], [1.0, 5.0]]), np.array([1.0, 1.0])
    liked = np.array([[0.5, 0.25]])
    assert best_routes(xy, demands, liked, 2.0, (1.0, 0.0)) == pytest.approx(-12.0)
    assert best_routes(xy, demands, liked, 2.0, (0.0, 1.0)) == pytest.approx(0.75)
    assert best_routes(xy, demands, liked, 1.0, (1.0, 0.0)) == pytest.approx(-18.0)  # there and back, twice
