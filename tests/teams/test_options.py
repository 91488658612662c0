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
