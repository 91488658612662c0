"""Overcooked: the kitchen of the package, as a game of two agents."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest

pytest.importorskip("pettingzoo")
with contextlib.redirect_stderr(io.StringIO()):
    grids = pytest.importorskip("overcooked_ai_py.mdp.overcooked_mdp")

from palaestra.envs import make
from palaestra.envs.overcooked import overcooked
from palaestra.errors import InputError
from palaestra.testing.env import check_env

NORTH, SOUTH, EAST, WEST, STAY, INTERACT = range(6)


def played(env, moves):
    """Rewards and infos of each step of a cook who moves so while the other stays."""
    env.reset(0)
    return [env.step({"player_0": move, "player_1": STAY}) for move in moves]


def test_it_keeps_the_protocol():
    check_env(make("overcooked/cramped_room", horizon=20, random_start=True))
    check_env(overcooked("coordination_ring", horizon=20), varied=False)


def test_it_shows_and_pays_what_the_package_does():
    from overcooked_ai_py.mdp.actions import Action

    env, rng = overcooked("cramped_room", horizon=300)(), np.random.default_rng(0)
    rules = grids.OvercookedGridworld.from_layout_name("cramped_room")
    state, seen = rules.get_standard_start_state(), env.reset(0)
    progress = 0.0
    while seen:
        planes = rules.lossless_state_encoding(state, horizon=300)
        for agent, plane in zip(env.agents, planes, strict=True):
            np.testing.assert_array_equal(seen[agent].array, plane.ravel())
        moves = rng.integers(6, size=2).tolist()
        state, said = rules.get_state_transition(state, [Action.INDEX_TO_ACTION[move] for move in moves])
        result = env.step(dict(zip(env.agents, moves, strict=True)))
        assert set(result.rewards.values()) == {float(sum(said["sparse_reward_by_agent"]))}
        assert list(result.info["progress"].values()) == list(map(float, said["shaped_reward_by_agent"]))
        progress, seen = progress + sum(said["shaped_reward_by_agent"]), result.observations
    assert progress > 0, "an ingredient was put into the pot at least once"
    assert result.truncated
    assert not result.terminated


ONION = [WEST, INTERACT, EAST, NORTH, INTERACT]
"""From below the pot of the cramped room: an onion is fetched and put in."""
DISH = [SOUTH, WEST, SOUTH, INTERACT, EAST, NORTH]
SERVE = [INTERACT, SOUTH, EAST, SOUTH, INTERACT]


@pytest.mark.parametrize("when_full", [False, True])
def test_a_served_soup_pays_both_and_the_way_there_is_told(when_full):
    """Turned on by hand or by itself, a soup takes twenty steps: one step earlier there is nothing to take up."""
    env = overcooked("cramped_room", cook_when_full=when_full)()
    filled = [NORTH, *ONION, *ONION, *ONION, *([] if when_full else [INTERACT]), *DISH]
    early, late = (played(env, [*filled, *[STAY] * waiting, *SERVE]) for waiting in (12, 13))
    assert sum(sum(result.rewards.values()) for result in early) == 0
    assert [result.rewards["player_1"] for result in late if any(result.rewards.values())] == [20.0]
    told = [result.info["progress"]["player_0"] for result in late]
    assert [each for each in told if each] == [3, 3, 3, 3, 5], "three onions, the dish in time, the soup taken up"
    assert {result.info["progress"]["player_1"] for result in late} == {0.0}


def test_starts_are_drawn_from_the_seed_if_asked():
    def starts(**options):
        env = overcooked("cramped_room", **options)()
        return {env.reset(seed)["player_0"].array.tobytes() for seed in range(12)}

    assert len(starts()) == 1
    assert len(starts(random_start=True)) > 6


def test_layouts_are_checked_by_name():
    with pytest.raises(InputError, match="cramped_room"):
        overcooked("cramped_rom")
    with pytest.raises(InputError, match="cooks"):
        overcooked("cramped_room_single")
    with pytest.raises(InputError, match="horizon"):
        overcooked("cramped_room", horizon=0)
