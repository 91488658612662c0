"""Designed rewards: exact quantities, EXPRD's card numbers, ExploRS' update."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.errors import InputError
from palaestra.rewards import ExploRS, design_reward, explicable
from palaestra.rewards.shaping.mdp import occupancy, optimal_q, policy_q
from palaestra_atlas.catalog.rewards.s015_exprd import GAMMA, OBJECTIVES, STATES, SUPPORT, line

RNG = np.random.default_rng(0)
MOVES, REWARD = RNG.dirichlet(np.ones(4), size=(4, 3)), RNG.random((4, 3))


def test_exact_quantities_against_iteration() -> None:
    policy = RNG.dirichlet(np.ones(3), size=4)
    q, best = np.zeros((4, 3)), np.zeros((4, 3))
    visits, flow = np.zeros(4), np.eye(4)[1]
    for _ in range(400):
        q = REWARD + 0.9 * MOVES @ (policy * q).sum(axis=1)
        best = REWARD + 0.9 * MOVES @ best.max(axis=1)
        visits, flow = visits + flow, 0.9 * np.einsum("s,sa,sat->t", flow, policy, MOVES)
    np.testing.assert_allclose(policy_q(MOVES, REWARD, policy, 0.9), q)
    np.testing.assert_allclose(optimal_q(MOVES, REWARD, 0.9), best)
    np.testing.assert_allclose(occupancy(MOVES, policy, np.eye(4)[1], 0.9), visits)
    several = np.stack([policy, np.full((4, 3), 1 / 3)])
    np.testing.assert_allclose(policy_q(MOVES, REWARD, several, 0.9)[0], q)
    np.testing.assert_allclose(occupancy(MOVES, several, np.eye(4)[1], 0.9)[0], visits)
    with pytest.raises(InputError, match="expected"):
        policy_q(MOVES[:2], REWARD, policy, 0.9)
    with pytest.raises(InputError, match="at most 1"):
        policy_q(2 * MOVES, REWARD, policy, 0.9)


def test_exprd_worked_supports() -> None:
    steps = explicable(*line(), GAMMA, 4)
    assert steps[-1][0] == SUPPORT
    np.testing.assert_allclose([design.objective for _, design in steps], OBJECTIVES, atol=1e-5)
    for support, design in steps:
        unpaid = np.delete(design.reward, support, axis=0)
        assert not unpaid.any()
        assert np.abs(design.reward).max() <= 1 + 1e-9
        assert (optimal_q(line()[0], design.reward, GAMMA).argmax(axis=1)[:STATES] == 1).all()


def test_a_support_that_cannot_keep_the_optimum_is_named() -> None:
    with pytest.raises(InputError, match=r"the states \[0\] keeps"):
        design_reward(*line(), GAMMA, active=[0])


@pytest.mark.parametrize("options", [{}, {"sparsity": 0.05}, {"learner": (np.full((3, 3), 1 / 3), np.ones(3))}])
@pytest.mark.parametrize("seed", [1, 5, 10, 15])
def test_of_several_optimal_actions_each_keeps_its_lead(seed: int, options: dict) -> None:
    rng = np.random.default_rng(seed)
    moves, reward = rng.dirichlet(np.full(3, 0.5), size=(3, 3)), rng.integers(-1, 2, size=(3, 3)).astype(float)
    moves[:, 1], reward[:, 1] = moves[:, 0], reward[:, 0]
    q = optimal_q(moves, reward, 0.9)
    best = q >= q.max(axis=1, keepdims=True) - 1e-9
    designed = optimal_q(moves, design_reward(moves, reward, 0.9, limit=10.0, **options).reward, 0.9)
    for state in np.flatnonzero(~best.all(axis=1)):
        lead = designed[state][best[state]].min() - designed[state][~best[state]].max()
        assert lead >= q[state].max() - q[state][~best[state]].max() - 1e-6


def test_sparsity_costs_informativeness() -> None:
    dense, sparse = (design_reward(*line(), GAMMA, sparsity=weight).reward for weight in (0.0, 1.0))
    assert np.abs(sparse).sum() < np.abs(dense).sum()


def test_the_adaptive_design_pays_where_the_learner_is() -> None:
    moves, reward = line()
    policy = np.full((STATES + 1, 2), 0.5)
    for place in (1, 5):
        designed = design_reward(moves, reward, GAMMA, learner=(policy, np.eye(STATES + 1)[place])).reward
        assert designed[place, 1] - designed[place, 0] == pytest.approx(2.0)
        assert (optimal_q(moves, designed, GAMMA).argmax(axis=1)[:STATES] == 1).all()


def test_explors_counts_arrivals_and_learns_from_the_original_return() -> None:
    shaped = ExploRS(3, 2, rate=1.0)
    zero = np.zeros(2, int)
    paid = shaped.reward(zero, zero, np.array([0.0, 1.0]), np.array([1, 2]), np.array([False, True]))
    np.testing.assert_allclose(paid, [1 / 2**0.5, 1.0])
    shaped.update(np.array([0]), np.array([1]), np.array([2.0]), np.full((3, 2), 0.5))
    np.testing.assert_allclose(shaped.table[0], [-0.5, 0.5])  # 1/2 · (2 - 0) · (1[a] - 1/2)
    assert shaped.value[0] == 2.0
    np.testing.assert_allclose(shaped.reward(zero[:1], zero[:1] + 1, np.zeros(1), zero[:1] + 2, np.array([True])), 0.5)


def test_explors_keeps_the_mean_of_the_returns_and_counts_no_end() -> None:
    """Returns 1 and 2 of state 0, then 6: means 1.5 and 3; of the last move f rises by .1 · 1/2 · (6 - 1.5) · 1/2."""
    model = ExploRS(2, 2, rate=0.1)
    halves = np.full((2, 2), 0.5)
    model.update(np.array([0, 0, 1]), np.array([0, 0, 1]), np.array([1.0, 2.0, 0.0]), halves)
    np.testing.assert_allclose(model.value, [1.5, 0])
    before = model.table.copy()
    model.update(np.array([0]), np.array([1]), np.array([6.0]), halves)
    np.testing.assert_allclose(model.table - before, [[-0.1125, 0.1125], [0, 0]])
    np.testing.assert_allclose(model.value, [3, 0])
    states = np.array([0, 0])
    model.reward(states, states, np.zeros(2), np.array([1, 1]), np.array([False, True]))
    np.testing.assert_array_equal(model.visits, [0, 1])


def test_explors_bonus_is_bounded_by_most_and_scaled() -> None:
    shaped = ExploRS(2, 1, scale=2.0, most=0.5)
    zero, on = np.zeros(1, int), np.array([False])
    for visits in (1, 2, 3):
        paid = shaped.reward(zero, zero, np.zeros(1), zero + 1, on)
        np.testing.assert_allclose(paid, 2 / (2**2 / 0.5**2 + visits) ** 0.5)


def test_the_adaptive_design_gains_where_the_learner_still_errs() -> None:
    """Of two actions, one better by δ, a step gains 2 μ π (1 - π) δ: .5 δ of guesses, .18 δ if one in ten is wrong."""
    moves, reward = line()
    visits = np.eye(STATES + 1)[1]
    shares = [[0.5, 0.5], [0.1, 0.9]]
    guess, nearly = (
        design_reward(moves, reward, GAMMA, learner=(np.tile(each, (STATES + 1, 1)), 3 * visits)).objective
        for each in np.array(shares)
    )
    once = design_reward(moves, reward, GAMMA, learner=(np.full((STATES + 1, 2), 0.5), visits)).objective
    q = optimal_q(moves, reward, GAMMA)[1]
    assert once == pytest.approx(0.5 * (q[1] - q[0]))
    assert (guess / once, nearly / once) == pytest.approx((3, 3 * 0.36))
