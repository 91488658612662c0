"""The grid whose places are taken in order."""

import numpy as np
import pytest

from palaestra.envs.worlds import PlacesGrid
from palaestra.errors import InputError


def placed(cells: list[list[int]], places: list[list[int]], **options: object) -> PlacesGrid:
    """A grid with walkers and places in these cells."""
    env = PlacesGrid(walkers=len(cells), places=len(places), **options)  # type: ignore[arg-type]
    env.reset(0)
    env.state.cells, env.state.places = np.array(cells), np.array(places)
    return env


def test_a_door_needs_its_key() -> None:
    env = placed([[1, 0]], [[0, 1], [0, 0], [0, 2]])
    assert env.step({"walker_0": "up"}).info["places_taken"] == 0
    assert env.step({"walker_0": "right"}).info["places_taken"] == 1
    assert env.step({"walker_0": "left"}).info["places_taken"] == 2
    assert env.open().tolist() == [False, False, True]
    env.step({"walker_0": "right"})
    result = env.step({"walker_0": "right"})
    assert (result.terminated, result.info["success"], result.rewards) == (True, True, {"walker_0": 1 - 0.9 * 5 / 40})


def test_the_first_of_two_walkers_takes_a_place() -> None:
    env = placed([[1, 1], [1, 1]], [[0, 1], [5, 5]], chain=False)
    env.step({"walker_0": "up", "walker_1": "up"})
    assert env.reached().tolist() == [[True, False], [False, False]]


def test_options_out_of_range_are_named() -> None:
    with pytest.raises(InputError, match="side=1"):
        PlacesGrid(side=1)


def test_a_walker_sees_shares_of_the_way_and_what_is_taken() -> None:
    """Of a side of 6: two rows down and five columns right are .4 and 1; cell (1, 0) is at -.6 and -1."""
    env = placed([[1, 0]], [[3, 5], [1, 0]], chain=False)
    seen = env.step({"walker_0": "left"}).observations["walker_0"]
    np.testing.assert_allclose(seen.array, [0.4, 1.0, 0.0, 0.0, 0.0, 1.0, -0.6, -1.0], rtol=1e-6)
    assert env.aim("walker_0", 0).tolist() == [0.4, 1.0]
