"""Credit of several tasks at once."""

from __future__ import annotations

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.credit import by_task


def test_each_task_has_the_same_weight() -> None:
    turns = Turns({"part": ["a"] * 2 + ["b"] * 4, "reward": [0.0, 1.0, 0.0, 0.0, 1.0, 1.0]})
    scaled = Turns({"part": ["a"] * 2 + ["b"] * 4, "reward": [0.0, 9.0, 5.0, 5.0, 6.0, 6.0]})
    found = by_task("reward").evaluate(turns)
    np.testing.assert_allclose(by_task("reward").evaluate(scaled), found, atol=1e-4)
    unit = np.abs(found) * np.repeat([np.sqrt(0.5), np.sqrt(1 / 3)], [2, 4]) / 0.5
    np.testing.assert_allclose(unit, [1.5, 1.5, 0.75, 0.75, 0.75, 0.75], rtol=1e-5)


def test_missing_scores_do_not_count() -> None:
    turns = Turns({"part": ["a", "a", "a", "b", "b"], "reward": [0.0, 1.0, None, 0.0, 1.0]})
    found = by_task("reward").evaluate(turns)
    assert np.isnan(found[2])
    np.testing.assert_allclose(np.abs(found[[0, 1]]), np.abs(found[[3, 4]]))
