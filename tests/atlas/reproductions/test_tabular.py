"""Softmax policies: the gradients are the derivatives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from palaestra.atlas.reproductions.tabular import policy_gradient, sample, softmax, uniform

RNG = np.random.default_rng(3)
THETA = RNG.normal(size=(2, 4, 3))


def numeric(function: Callable[[np.ndarray], float], at: np.ndarray, step: float = 1e-6) -> np.ndarray:
    gradient = np.zeros_like(at)
    for index in np.ndindex(at.shape):
        shift = np.zeros_like(at)
        shift[index] = step
        gradient[index] = (function(at + shift) - function(at - shift)) / (2 * step)
    return gradient


def test_softmax_sums_to_one_and_survives_large_values() -> None:
    np.testing.assert_allclose(softmax(THETA).sum(axis=-1), 1)
    np.testing.assert_allclose(softmax(np.array([1000.0, 0.0])), [1, 0])


def test_policy_gradient_is_the_derivative_of_the_weighted_log_likelihood() -> None:
    run, state, action = (RNG.integers(n, size=50) for n in THETA.shape)
    advantage = RNG.normal(size=50)

    def objective(theta: np.ndarray) -> float:
        return float((advantage * np.log(softmax(theta)[run, state, action])).sum())

    expected = numeric(objective, THETA)
    np.testing.assert_allclose(policy_gradient(softmax(THETA), run, state, action, advantage), expected, atol=1e-6)


def test_a_run_draws_the_same_whoever_runs_beside_it() -> None:
    together = uniform([np.random.default_rng(1), np.random.default_rng(2)], 3, 2)
    np.testing.assert_array_equal(together[1], uniform([np.random.default_rng(2)], 3, 2)[0])


def test_samples_follow_their_probabilities() -> None:
    luck = np.random.default_rng(0).random(50_000)
    drawn = np.bincount(sample(np.array([0.2, 0.0, 0.5, 0.3]), luck), minlength=4) / len(luck)
    np.testing.assert_allclose(drawn, [0.2, 0, 0.5, 0.3], atol=0.01)
    assert sample(np.array([0.0, 1.0]), np.array([0.0])).tolist() == [1]  # an impossible action is never drawn
