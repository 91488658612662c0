"""Upper seats that choose subgoals."""

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
