"""Dense rewards of turns: what they add up to."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.algebra.turns import Turns
from palaestra.rewards import dense_reward


@pytest.mark.parametrize(
    ("gained", "won", "most", "total"),
    [([1.0, 0.0, 1.0, 1.0], True, 5, 1.0), ([1.0, 0.0, 1.0, 0.0], False, 5, 0.4), ([0.0, 0.0], True, 0, 0.0)],
)
def test_the_sum_of_an_episode_is_at_most_one(gained: list[float], won: bool, most: int, total: float) -> None:
    turns = len(gained)
    rows = {"group": [3] * turns, "episode": [1] * turns, "turn": range(turns), "agent": ["a"] * turns}
    told = {"gained": gained, "most": [most] * turns, "success": [None] * (turns - 1) + [won]}
    found = np.asarray(dense_reward().evaluate(Turns(rows | told)))
    assert found.sum() == pytest.approx(total)
    assert ((found > 0) == (np.array(gained) > 0)).all()


def test_episodes_are_normalised_each_by_itself() -> None:
    rows = {"group": [0, 0, 0], "episode": [0, 0, 1], "gained": [1.0, 1.0, 1.0], "most": [4, 4, 4]}
    found = dense_reward().evaluate(Turns(rows | {"success": [None, True, False]}))
    np.testing.assert_allclose(np.asarray(found), [0.5, 0.5, 0.25])
