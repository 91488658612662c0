"""Percentile vectors, Pareto dominance, and who copies whom."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.errors import InputError
from palaestra.evaluation.fitness import best_of, dominates, exploited, participation, percentile_vector


def test_dominance_needs_no_loss_and_one_gain():
    assert dominates([[1, 2], [1, 2], [0, 9]], [[1, 1], [1, 2], [1, 2]]).tolist() == [True, False, False]


def test_the_best_is_dominated_by_nobody():
    assert best_of(np.array([[0.2, 0.3], [0.2, 0.5], [0.1, 0.45]])) == 1


def test_only_the_dominated_have_another_parent():
    fitness = np.array([[0.1, 0.1], [0.5, 0.5], [0.6, 0.2]])
    for seed in range(20):
        parents = exploited(fitness, np.random.default_rng(seed))
        assert parents[1:].tolist() == [1, 2]
        assert parents[0] in (1, 2)
    assert exploited(fitness[:1], np.random.default_rng(0)).tolist() == [0]


def test_vectors_of_many_members():
    assert percentile_vector(np.zeros((3, 4, 10)), [0.1, 0.5]).shape == (3, 4, 2)
    assert participation([[0, 1], [1, 1]]).tolist() == [0.5, 1.0]
    for wrong in (([], [0.5]), ([1.0], []), ([1.0], [2.0])):
        with pytest.raises(InputError, match="percentile_vector"):
            percentile_vector(*wrong)
