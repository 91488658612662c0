from __future__ import annotations

import numpy as np
import pytest

from palaestra.errors import InputError
from palaestra.evaluation.teamwork import averaging_floor, best_team, best_tree, majority_gain, synergy, tree_signal


def test_what_a_majority_makes_of_a_weak_signal():
    assert [majority_gain(b) for b in (3, 5, 7)] == [1.5, 1.875, 2.1875]
    assert majority_gain(9) == pytest.approx(2.4609, abs=1e-4)
    slope = (tree_signal(1e-6, branch=5, depth=1) - tree_signal(-1e-6, branch=5, depth=1)) / 2e-6
    assert slope == pytest.approx(1.875, abs=1e-5)


@pytest.mark.parametrize(
    ("fidelity", "correlation", "alpha", "exponent", "fixed"),
    [(0.9, 0.0, 1.35, 0.2732, 0.8819), (0.9, 0.5, 1.125, 0.1072, 0.7454), (0.9, 0.8, 0.990, None, 0.0),
     (0.66, 0.0, 0.990, None, 0.0), (0.67, 0.0, 1.005, None, 0.1222)],
)  # fmt: skip
def test_the_worked_phases(fidelity, correlation, alpha, exponent, fixed):
    found = synergy(3, fidelity, correlation)
    assert found.alpha == pytest.approx(alpha, abs=5e-4)
    assert found.fixed_point == pytest.approx(fixed, abs=2e-3)
    if exponent is not None:
        assert found.exponent == pytest.approx(exponent, abs=1e-4)


def test_what_carries_nothing_dies_at_once():
    found = synergy(3, 0.0)
    assert (found.alpha, found.exponent, found.fixed_point) == (0.0, -np.inf, 0.0)


def test_what_is_only_passed_on_dies_too():
    assert synergy(3, 1.0, 1.0) == (1.0, 0.0, 0.0)


def test_no_node_of_the_best_team_hears_more_than_its_window():
    given = {"scale": 0.05, "exponent": 0.1, "fidelity": 0.95}
    assert best_team(729, **given).branch > 3
    assert best_team(729, window=40, message=12, **given).branch == 3
    assert best_team(729, window=20, message=12, **given) == (1, 0, pytest.approx(0.05 * 729**0.1))
    with pytest.raises(InputError, match="window=0"):
        best_team(729, window=0, **given)


def test_the_least_and_the_whole_of_a_budget():
    assert best_tree(1, branch=3, scale=0.5, exponent=0.7) == (0, 0.5)
    for levels in (2, 5):  # log_3 of 3^5 is below 5 in floats
        assert best_tree(3**levels, branch=3, scale=0.25, exponent=0.0)[0] == levels, "all leaves are as good"
    for budget, scale in ((0.5, 1.0), (1, 0.0)):
        with pytest.raises(InputError, match="at least 1 and scale="):
            best_tree(budget, branch=3, scale=scale, exponent=1.0)


@pytest.mark.parametrize("fidelity", [0.67, 0.7, 0.9, 1.0])
def test_the_fixed_point_of_three_has_a_formula(fidelity):
    """μ² = (3γ/2 - 1) / (γ/2) without correlation; just above the threshold it takes thousands of levels."""
    assert synergy(3, fidelity).fixed_point == pytest.approx(((1.5 * fidelity - 1) / (0.5 * fidelity)) ** 0.5, abs=1e-6)


def test_at_most_one_the_signal_dies():
    rng = np.random.default_rng(0)
    for _ in range(30):
        fidelity, correlation = rng.uniform(0.4, 1), rng.uniform(0, 1)
        weak = tree_signal(0.05, branch=3, depth=400, fidelity=fidelity, correlation=correlation)
        alpha = synergy(3, fidelity, correlation).alpha
        if abs(alpha - 1) > 0.02:
            assert (weak > 0.05) == (alpha > 1)


def test_the_recursion_is_what_a_simulated_tree_does():
    """The card's Monte Carlo: depth 4, signal .1 at the leaves, γ = .9."""
    for branch, correlation, expected in ((3, 0.0, 0.319), (3, 0.5, 0.158), (3, 0.8, 0.096), (5, 0.5, 0.268)):
        found = tree_signal(0.1, branch=branch, depth=4, fidelity=0.9, correlation=correlation)
        assert found == pytest.approx(expected, abs=1e-3)
    rng = np.random.default_rng(0)
    votes = rng.random((60_000, 9)) < 0.55
    for width in (3, 1):
        majority = votes.reshape(len(votes), width, 3).sum(2) >= 2
        votes = majority ^ (rng.random(majority.shape) < 0.05)
    assert 2 * votes.mean() - 1 == pytest.approx(tree_signal(0.1, branch=3, depth=2, fidelity=0.9), abs=0.012)


def test_a_team_helps_exactly_where_its_exponent_is_above_that_of_one_agent():
    def both(beta, rho):
        depth, signal = best_tree(729, branch=3, scale=0.02, exponent=beta, fidelity=0.95, correlation=rho)
        return depth, signal, 0.02 * 729**beta

    for beta, rho, helps in ((0.3, 0.0, True), (0.5, 0.0, False), (0.1, 0.5, True), (0.2, 0.5, False)):
        depth, signal, alone = both(beta, rho)
        assert (depth > 0) == helps
        assert signal >= alone
    assert both(0.3, 0.0)[1] == pytest.approx(0.166, abs=2e-3)
    assert both(0.1, 0.5)[1] == pytest.approx(0.056, abs=2e-3)


def test_the_floor_of_averages():
    assert (averaging_floor(0.5, branch=2), averaging_floor(0.0, branch=3)) == (0.5, 0.0)
    for noise, branch, correlation in ((0.5, 1, 0.0), (-0.1, 2, 0.0), (0.5, 2, 1.0)):
        with pytest.raises(InputError, match="averaging_floor"):
            averaging_floor(noise, branch=branch, correlation=correlation)
    assert averaging_floor(0.05, branch=4, correlation=0.2) == pytest.approx(0.020833, abs=1e-6)
    v = 1.0
    for _ in range(200):
        v = v * (0.2 + 0.8 / 4) + 0.05 / 4
    assert v == pytest.approx(averaging_floor(0.05, branch=4, correlation=0.2))


@pytest.mark.parametrize("branch", [2, 4, 1])
def test_even_majorities_are_refused(branch):
    with pytest.raises(InputError, match="odd"):
        synergy(branch)
    with pytest.raises(InputError, match="from 0 to 1"):
        synergy(3, 1.2)
