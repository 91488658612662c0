"""MatchTIR's credit: worked numbers of [97]."""

from __future__ import annotations

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.credit import matchtir


def test_turns_are_compared_with_turns_of_the_same_number() -> None:
    keys = {"group": [0] * 6, "episode": [0] * 3 + [1] * 3, "turn": [0, 1, 2] * 2, "agent": ["a"] * 6}
    turns = Turns(keys | {"reward": [1, 0.5, 1, 1, 0, 0]})
    np.testing.assert_allclose(matchtir().evaluate(turns), np.repeat([0.7071, -0.7071], 3), atol=1e-4)
    returns = np.array([2.26, 1.4, 1, 1, 0, 0])
    raw = matchtir(weight=0).evaluate(turns.with_column(group=[0] * 3 + [1] * 3))
    np.testing.assert_allclose(raw, returns, rtol=1e-5)


def test_agents_that_act_at_once_and_earn_the_same_have_no_credit() -> None:
    keys = {"group": [0] * 12, "episode": np.repeat([0, 1, 2], 4), "turn": [0] * 12}
    turns = Turns(keys | {"agent": ["n0", "n1", "n2", "n3"] * 3, "reward": [1.0] * 12})
    np.testing.assert_allclose(matchtir().evaluate(turns), 0, atol=1e-12)
