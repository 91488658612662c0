"""Bayesian optimisation of a few settings."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.errors import InputError
from palaestra.foundation.bayes import expected_improvement, maximise


def test_improvement_is_expected_between_and_beyond_what_is_known() -> None:
    points, values = np.array([[0.0], [0.5], [1.0]]), np.array([0.0, 1.0, 0.2])
    found = expected_improvement(points, values, np.array([[0.5], [0.65], [0.0]]))
    assert found[1] > 2 * found[0]
    assert found[2] < 1e-3
    assert np.allclose(expected_improvement(points, 3 * values + 7, np.array([[0.65]])), 3 * found[1])


def test_it_finds_the_top_of_a_hill() -> None:
    points, values = maximise(lambda x: -float(((x - [0.3, 0.7]) ** 2).sum()), 2, 20, np.random.default_rng(1))
    assert (points.shape, values.shape) == ((20, 2), (20,))
    assert np.abs(points[values.argmax()] - [0.3, 0.7]).max() < 0.1


def test_equal_values_and_small_budgets_are_no_fault() -> None:
    points, _ = maximise(lambda x: 1.0, 1, 6, np.random.default_rng(0))
    assert len(points) == 6
    assert len(maximise(lambda x: 0.0, 1, 2, np.random.default_rng(0))[0]) == 2
    with pytest.raises(InputError, match="budget=0"):
        maximise(lambda x: 0.0, 1, 0, np.random.default_rng(0))
