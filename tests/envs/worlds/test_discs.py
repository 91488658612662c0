"""Walkers among a wall and two discs that pay."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.envs.worlds.discs import CENTRES, HEADINGS, WALL, Discs, moved, paid, sensed
from palaestra.errors import InputError


def test_the_wall_has_an_end_and_the_square_an_edge():
    places = np.array([[0.9, 0.4], [0.2, 0.4], [0.99, 0.1]])
    after = moved(places, np.array([6, 6, 0]), 0.12)
    assert np.allclose(after, [[0.9, 0.4], [0.2, 0.52], [1.0, 0.1]])


def test_headings_divide_the_circle():
    env = Discs(walkers=1, steps=1, headings=360)
    assert env.moves[90] == "90 degrees"
    env.reset(0)
    env.step({"walker_0": 1})
    angle = np.pi / 180
    assert np.allclose(env.state.places[0], [0.5 + 0.12 * np.cos(angle), 0.15 + 0.12 * np.sin(angle)])


def test_a_disc_pays_in_its_middle_and_nothing_outside():
    reward, disc = paid(np.array([CENTRES[0], CENTRES[1] + [0.02, 0], [0.5, 0.5]]), 0.08)
    assert reward.tolist() == pytest.approx([1.0, 0.5, 0.0])
    assert disc.tolist() == [0, 1, -1]


def test_an_episode_ends_with_what_each_walker_sees():
    env = Discs(walkers=3, steps=2, sensors=2, flicker=3)
    seen = env.reset(0)
    assert [*seen] == ["walker_0", "walker_1", "walker_2"]
    for _step in range(2):
        result = env.step(dict.fromkeys(env.agents, 0))
    assert result.terminated
    assert len(result.info["view"]["walker_0"]) == 7
    assert result.rewards == dict.fromkeys(env.agents, 0.0)


def test_sensors_tell_places_apart_and_flicker_does_not():
    views = sensed(np.array([[0.1, 0.1], [0.1, 0.1], [0.9, 0.9]]), 3, np.random.default_rng(0), 2)
    assert np.array_equal(views[0, :9], views[1, :9])
    assert not np.allclose(views[0, :9], views[2, :9])
    assert not np.allclose(views[0, 9:], views[1, 9:])


@pytest.mark.parametrize("options", [{"walkers": 0}, {"steps": 0}, {"radius": 0.0}, {"sensors": -1}])
def test_numbers_out_of_range_are_named(options):
    with pytest.raises(InputError, match="Discs"):
        Discs(**options)


def test_a_step_crosses_the_wall_where_it_meets_its_height():
    """A slanted step is stopped if the wall is where it reaches the wall's height, not where it begins or ends."""
    height, left, _ = WALL
    drop = 0.1 * np.sin(np.pi / 4)
    for inward, stopped in ((-0.01, False), (0.01, True)):  # up and right, half of it below the wall
        start = np.array([[left + inward - drop / 2, height - drop / 2]])
        after = moved(start, np.array([HEADINGS // 8]), 0.1)
        assert np.allclose(after, start if stopped else start + drop)
