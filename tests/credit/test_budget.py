"""Budgets: worked numbers of [98], the best allocation among all, and the value model."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from palaestra.credit import ValueAtStart, allocate_budget, mixed_group_probability, rare_success, route
from palaestra.errors import InputError

P = np.array([0.05, 0.2, 0.5, 0.95])


def test_worked_utilities() -> None:
    table = [[rare_success(p, b) for b in (2, 4, 8, 16)] for p in (0.1, 0.5, 0.9)]
    expected = [[0.18, 0.9756, 3.7563, 11.4352], [0.5, 1.75, 3.9688, 7.9998], [0.18, 0.3996, 0.8, 1.6]]
    np.testing.assert_allclose(table, expected, atol=6e-5)
    np.testing.assert_allclose(
        mixed_group_probability(0.1, np.array([2, 4, 8, 16])), [0.18, 0.3438, 0.5695, 0.8147], atol=2e-4
    )


def test_the_worked_allocation_is_the_best_of_all() -> None:
    counts = allocate_budget(P, 32)
    assert counts.tolist() == [9, 9, 5, 9]
    assert mixed_group_probability(0.5, np.array([0, 1, 2])).tolist() == [0.0, 0.0, 0.5]
    assert allocate_budget(np.full(4, 0.5), 4, minimum=0).max() > 1, "four tasks tried once teach nothing"
    assert mixed_group_probability(P, counts).sum() == pytest.approx(2.543, abs=1e-3)
    assert mixed_group_probability(P, np.full(4, 8)).sum() == pytest.approx(2.498, abs=1e-3)
    every = (c for c in itertools.product(range(2, 11), repeat=3) if sum(c) == 14)
    best = max(mixed_group_probability(P[:3], np.array(c)).sum() for c in every)
    assert mixed_group_probability(P[:3], allocate_budget(P[:3], 14)).sum() == pytest.approx(best)


def test_a_budget_that_cannot_be_spent_is_named() -> None:
    with pytest.raises(InputError, match="7 rollouts are less than 2 for each of 4 tasks"):
        allocate_budget(P, 7)
    with pytest.raises(InputError, match=r"found \[1\.2\]"):
        allocate_budget(np.array([1.2]), 4)
    with pytest.raises(InputError, match=r"found \[nan\]"):
        allocate_budget(np.array([np.nan]), 4)
    with pytest.raises(InputError, match="minimum=-1 is negative"):
        allocate_budget(P, 8, minimum=-1)
    assert allocate_budget(np.zeros(0), 0).shape == (0,)


def test_dear_policies_are_asked_only_where_it_pays() -> None:
    p, cost = np.array([[0.9, 0.8], [0.9, 0.2]]), np.array([1.0, 0.1])
    assert [route(p, cost, beta=b).tolist() for b in (1, 0.6, 0)] == [[0, 0], [1, 0], [1, 1]]


def test_chances_and_costs_that_do_not_match_are_named() -> None:
    with pytest.raises(InputError, match=r"route: p \(2, 3\) and cost \(2,\)"):
        route(np.ones((2, 3)), np.ones(2))
    for p, cost in (([[np.nan]], [0.5]), ([[0.5]], [7.0])):
        with pytest.raises(InputError, match=r"not in \[0, 1\]"):
            route(np.array(p), np.array(cost))


def test_the_value_model_learns_chances_and_refuses_one_sided_contexts() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 3))
    p = 1 / (1 + np.exp(-(x @ [2.0, -1.0, 0.0] + 0.5)))
    found = ValueAtStart(pairwise=0.0, ridge=1e-6).fit(x, rng.random(4000) < p).predict(x)
    assert np.abs(found - p).mean() < 0.02
    with pytest.raises(InputError, match="all 3 outcomes are alike"):
        ValueAtStart().fit(x[:3], np.ones(3))
    with pytest.raises(InputError, match="ridge=0"):
        ValueAtStart(ridge=0)
    for features, outcomes in ((x[:3], [0, 1]), (x[0], [0, 1, 0]), (np.array([[np.nan], [1.0]]), [0, 1])):
        with pytest.raises(InputError, match="give a row of finite features and an outcome for each task"):
            ValueAtStart().fit(features, np.array(outcomes))
    with pytest.raises(InputError, match="not fitted"):
        ValueAtStart().predict(x)


def test_the_ridge_holds_weights_where_the_loss_pulls_as_much() -> None:
    """Four tasks at ±1: σ(-w) = ridge·w/4, and of pairs 2σ(-2w) = ridge·w/4; both chosen so that σ is 1/4."""
    x, solved, log3 = np.array([[1.0], [1.0], [-1.0], [-1.0]]), np.array([1, 1, 0, 0]), np.log(3)
    entropy = ValueAtStart(pairwise=0.0, ridge=1 / log3).fit(x, solved).predict(x)
    assert entropy == pytest.approx([0.75, 0.75, 0.25, 0.25], abs=1e-4)
    pairs = ValueAtStart(pairwise=1.0, ridge=4 / log3).fit(x, solved).predict(x)
    assert pairs == pytest.approx(np.repeat([3**0.5, 1], 2) / (1 + 3**0.5), abs=1e-4)


def ring(number: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tasks that are solved off the centre: no linear function of the features knows which."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(number, 2))
    p = 1 / (1 + np.exp(-4 * ((x**2).sum(axis=1) - 1.4)))
    return x, p, rng.random(number) < p


def test_a_kernel_knows_what_no_linear_predictor_can() -> None:
    x, _, solved = ring(256, 0)
    fresh, p, _ = ring(400, 1)
    errors = {
        kernel: np.abs(ValueAtStart(kernel=kernel, ridge=0.3).fit(x, solved).predict(fresh) - p).mean()  # type: ignore[arg-type]
        for kernel in ("linear", "rbf")
    }
    assert errors["rbf"] < 0.12 < 0.3 < errors["linear"]


def test_the_kernel_is_the_inner_product_of_its_features() -> None:
    x, _, _ = ring(40, 0)
    fresh, _, _ = ring(30, 1)
    expand = ValueAtStart(kernel="rbf", width=0.8)._rbf(x)
    expected = np.exp(-((fresh[:, None] - x[None]) ** 2).sum(-1) / (2 * 0.8**2))
    np.testing.assert_allclose(expand(fresh) @ expand(x).T, expected, atol=1e-3)


def test_any_classifier_can_take_its_place() -> None:
    class Neighbour:
        def fit(self, features: np.ndarray, labels: np.ndarray) -> None:
            self.known, self.labels = features, labels

        def predict_proba(self, features: np.ndarray) -> np.ndarray:
            near = ((features[:, None] - self.known[None]) ** 2).sum(-1).argmin(axis=1)
            return np.eye(2)[self.labels[near]]

    x, _, solved = ring(64, 0)
    model = ValueAtStart(classifier=Neighbour).fit(x, solved)
    assert np.array_equal(model.predict(x), solved.astype(float))
    with pytest.raises(InputError, match="alike"):
        ValueAtStart(classifier=Neighbour).fit(x[:3], np.zeros(3))
    with pytest.raises(InputError, match="did you mean 'rbf'"):
        ValueAtStart(kernel="rbff")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="width=0"):
        ValueAtStart(width=0)


def test_equal_tasks_get_equal_budgets() -> None:
    for chance in (0.0, 0.5, 1.0):
        assert allocate_budget(np.full(6, chance), 48).tolist() == [8] * 6, chance
    assert sorted(allocate_budget(np.array([1.0, 1.0, 1.0, 0.5]), 640)) == [160] * 4, "more adds nothing to any"
