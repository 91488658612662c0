"""Upper seats that choose subgoals."""

import functools
from typing import Any

import numpy as np
import pytest

from palaestra.envs.worlds import Arms, PlacesGrid
from palaestra.errors import EnvError, InputError
from palaestra.teams import options


def test_an_env_without_subgoals_is_refused() -> None:
    with pytest.raises(InputError, match="no goals"):
        options(Arms)
    with pytest.raises(InputError, match="longest=0"):
        options(PlacesGrid, longest=0)


def test_upper_seats_act_first_and_agents_see_their_subgoal() -> None:
    env = options(PlacesGrid)()
    seen = env.reset(0)
    assert seen["upper-walker_0"].choices == ("key", "door", "goal")
    shown = env.step({"upper-walker_0": "door"}).observations["walker_0"]
    assert shown.text.endswith("subgoal: door")
    np.testing.assert_allclose(shown.array[-5:-2], [0, 1, 0])  # type: ignore[index]
    with pytest.raises(EnvError, match="walker_0"):
        env.step({"upper-walker_0": "door"})


def test_an_agent_is_paid_for_the_subgoal_by_its_time_and_the_upper_seat_by_the_env() -> None:
    """1 - .9 age / longest at the subgoal: the third move of six pays .55; nothing before."""
    env = options(PlacesGrid, longest=6)()
    env.reset(0)
    env.inner.state.cells, env.inner.state.places = np.array([[0, 0]]), np.array([[0, 3], [5, 5], [5, 4]])
    env.step({"upper-walker_0": "key"})
    paid = [env.step({"walker_0": "right"}) for _ in range(3)]
    assert [each.rewards["walker_0"] for each in paid] == [0.0, 0.0, pytest.approx(0.55)]
    assert [each.info["subgoal_done"]["walker_0"] for each in paid] == [False, False, True]
    assert [*paid[1].observations] == ["walker_0"]
    assert [*paid[2].observations] == ["upper-walker_0"]


def two(**further: Any) -> Any:
    """Two walkers at the left of the top and the bottom row, places in any order."""
    env = options(functools.partial(PlacesGrid, walkers=2, chain=False), **further)()
    env.reset(0)
    env.inner.state.cells = np.array([[0, 0], [5, 0]])
    env.inner.state.places = np.array([[0, 1], [0, 3], [5, 5]])
    return env


def test_options_of_two_walkers_end_apart_and_have_their_own_ages_and_numbers() -> None:
    """Option 0 of the first walker takes one step, the next one two; the other's ends after three and goes on anew."""
    env = two(longest=3)
    first = env.step({"upper-walker_0": "place 0", "upper-walker_1": "place 2"})
    np.testing.assert_allclose(first.observations["walker_1"].array[-2:], [0, 1])
    right = {"walker_0": "right", "walker_1": "right"}
    results = [env.step(right)]
    asked = results[0].observations
    assert (asked["upper-walker_0"].legal, asked["upper-walker_1"].legal) == (("place 1", "place 2"), ("place 2",))
    again = env.step({"upper-walker_0": "the moon", "upper-walker_1": "the moon"})
    assert again.info["valid"] == {"upper-walker_0": False, "upper-walker_1": False}
    results += [env.step(right), env.step(right)]
    assert {each: seen.legal for each, seen in results[2].observations.items()} == dict.fromkeys(asked, ("place 2",))
    env.step(dict.fromkeys(asked, "place 2"))
    results += [env.step(right), env.step(right)]
    told = [
        (*(each.info[name][walker] for name in ("subgoal", "option") for walker in right), each.info["inner_step"])
        for each in results
    ]
    assert told == [
        ("place 0", "place 2", 0, 0, 0),
        ("place 1", "place 2", 1, 0, 1),
        ("place 1", "place 2", 1, 0, 2),
        ("place 2", "place 2", 2, 1, 3),
        ("place 2", "place 2", 2, 1, 4),
    ]
    paid = [[each.rewards[walker] for walker in right] for each in results]
    np.testing.assert_allclose(paid, [[0.7, 0], [0, 0], [0.4, 0], [0, 0], [0, 0.4]])


def test_a_place_that_was_taken_on_the_way_changes_the_situation_too() -> None:
    """The first walker passes a place that nobody had chosen: with `adaptive` both choose again."""
    for adaptive in (True, False):
        env = two(adaptive=adaptive)
        env.step({"upper-walker_0": "place 1", "upper-walker_1": "place 2"})
        seen = env.step({"walker_0": "right", "walker_1": "right"}).observations
        assert ("upper-walker_0" in seen) == adaptive
