"""Mixed rewards of the roles of a procedure."""

from __future__ import annotations

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.rewards import mact, mact_reward

ROWS = {
    "group": [0] * 4, "episode": [0, 0, 1, 1], "policy": ["planner", "judge"] * 2, "process": [0.9, None, 1.0, None],
    "outcome": [None, 1.0, None, None], "reward": [0.0, 1.0, 0.0, 0.0],
}  # fmt: skip


def test_own_scores_and_the_outcome_have_their_weights():
    turns = Turns(ROWS)
    np.testing.assert_allclose(mact_reward().evaluate(turns), [1.9, 2, 1, 0])
    np.testing.assert_allclose(mact_reward(local=0.5, shared=2.0).evaluate(turns), [2.45, 2.5, 0.5, 0])


def test_each_role_is_compared_with_itself():
    turns = Turns(ROWS).with_column(reward=mact_reward())
    found = np.asarray(mact().evaluate(turns), float)
    np.testing.assert_allclose(found[0] + found[2], 0, atol=1e-9)
    assert found[0] > 0.5
    assert found[1] > 0.5
