"""Exact references of the native worlds: prices, choices, objectives, changes, designs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import optimize

from palaestra.envs.worlds.exact.change import change_score
from palaestra.envs.worlds.exact.choice import choice_position_test, stopping_value
from palaestra.envs.worlds.exact.design import (
    MODELS,
    DeathProcess,
    Linear,
    ParticleBelief,
    eig,
    exact_eig,
    gains,
    prior,
)
from palaestra.envs.worlds.exact.economics import (
    bargaining_fairness,
    bargaining_share,
    bertrand_nash_price,
    collusion_index,
    logit_demand,
    logit_monopoly_price,
    logit_nash_price,
    negotiation_fairness,
    optimal_welfare,
    persuasion_commitment,
    persuasion_scores,
    rubinstein_share,
)
from palaestra.envs.worlds.exact.networks import network, score, solve
from palaestra.envs.worlds.exact.objectives import beach_capacity, beach_optimum, esr, linear, product, ser, squares
from palaestra.errors import InputError
from palaestra.evaluation.ranking.alpha_rank import alpha_rank
from palaestra.evaluation.ranking.nash_averaging import nash_averaging

RING = network("ring", 4, 0)


def test_shares_of_the_card():
    found = [bargaining_share((0.9, 0.8), rounds) for rounds in (1, 2, 3, 4, 12, 13, 50)]
    np.testing.assert_allclose(found, [1, 0.2, 0.92, 0.344, 0.6148, 0.7541, 0.7141], atol=5e-5)
    assert rubinstein_share(0.9, 0.8) == pytest.approx(0.7143, abs=5e-5)
    assert bargaining_share((0.9, 0.8), 501) == pytest.approx(rubinstein_share(0.9, 0.8))
    assert bargaining_fairness(0.714) == pytest.approx(0.8168, abs=5e-5)
    assert negotiation_fairness(1.1, 1, 1.5) == pytest.approx(0.91)


def test_persuasion_as_it_should_be_and_as_it_was_published():
    good, bought = [True] * 8 + [False] * 12, [True] * 12 + [False] * 8
    scores = persuasion_scores(good, bought, value=2, bad_value=0)
    assert scores == pytest.approx({"efficiency": 1, "fairness": 8 / 12, "seller_gain": 0.6, "buyer_gain": 0.2})
    swapped = persuasion_scores(good, bought, value=2, bad_value=0, published=True)
    assert swapped["buyer_gain"] == pytest.approx(0.0)
    half = persuasion_scores([True] * 10 + [False] * 10, [True] * 10 + [False] * 2 + [True] * 8, value=2, bad_value=0)
    assert half["buyer_gain"] == pytest.approx(0.1)
    assert persuasion_commitment(1.0, 2, 0) == 1
    assert persuasion_commitment(1 / 3, 2, 0) == pytest.approx(2 / 3)
    assert persuasion_commitment(0.1, 3, 0.5) == pytest.approx(0.5)  # .1 (3 - 1) + .9 x (.5 - 1) = 0 at x = 4/9
    assert persuasion_commitment(0.5, 3, 0.5) == 1  # bad wares are always praised


@pytest.mark.parametrize("sellers", [2, 3])
def test_no_seller_gains_by_leaving_the_nash_price(sellers):
    nash = logit_nash_price(sellers)

    def loss(price):
        prices = np.full(sellers, nash)
        prices[0] = price
        return -(price - 1) * logit_demand(prices)[0]

    best = optimize.minimize_scalar(loss, bounds=(1, 3), method="bounded", options={"xatol": 1e-9})
    assert best.x == pytest.approx(nash, abs=1e-6)
    monopoly = optimize.minimize_scalar(
        lambda p: -(p - 1) * logit_demand(np.full(sellers, p)).sum(), bounds=(1, 3), method="bounded",
        options={"xatol": 1e-9},
    )  # fmt: skip
    assert monopoly.x == pytest.approx(logit_monopoly_price(sellers), abs=1e-6)


def test_undercutting_stops_at_the_last_margin():
    assert bertrand_nash_price([10, 12, 15], cost=10) == 12
    with pytest.raises(InputError, match="above the cost"):
        bertrand_nash_price([8, 9], cost=10)


def test_optimal_welfare_by_enumeration():
    rng = np.random.default_rng(0)
    for _ in range(10):
        utility = rng.normal(size=(3, 2))
        every = itertools.product(range(-1, 2), repeat=3)
        best = max(sum(utility[c, s] for c, s in enumerate(choice) if s >= 0) for choice in every)
        assert optimal_welfare(utility) == pytest.approx(best)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: score("colering", RING, [0] * 4), "did you mean 'colouring'"),
        (lambda: score("leader", RING, [1]), "1 answers of 4 agents"),
        (lambda: solve("mathcing", RING), "did you mean 'matching'"),
        (lambda: stopping_value([float("nan")], 1.0, 2), "finite"),
        (lambda: stopping_value([], 1.0, 2), "utilities"),
        (lambda: choice_position_test([1.5, 2.0], 3), "whole"),
        (lambda: change_score(3, 0), "true=0"),
        (lambda: beach_optimum(5, 0, 2), "sections=0"),
        (lambda: beach_optimum(5, 2, 0), "psi=0"),
        (lambda: rubinstein_share(1.0, 1.0), "one below 1"),
        (lambda: persuasion_scores([True], [True, False], value=2, bad_value=0), "1 goods, 2 decisions"),
        (lambda: persuasion_scores([], [], value=2, bad_value=0), "0 goods"),
        (lambda: collusion_index(11, 11, 11), "both 11"),
        (lambda: alpha_rank(np.array([[0.0, np.nan], [1.0, 0.0]])), "finite"),
        (lambda: alpha_rank(np.zeros((0, 0))), "there must be some"),
        (lambda: nash_averaging(np.zeros((0, 0))), "finite numbers"),
    ],
)
def test_what_has_no_value_is_no_value(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_a_partner_who_is_nobody_is_inconsistent():
    assert [score("matching", RING, [partner, 0, 3, 2]) for partner in (9, -2, None)] == [0.5] * 3


def test_position_test_keeps_its_level_and_finds_a_bias():
    rng = np.random.default_rng(0)
    even = [choice_position_test(rng.integers(1, 4, 500), 3).p < 0.01 for _ in range(2000)]
    assert 0.004 < np.mean(even) < 0.018
    first = np.where(rng.random(500) < 0.5, 1, rng.integers(1, 4, 500))
    assert choice_position_test(first, 3).p < 1e-6
    with pytest.raises(InputError, match="between 1 and"):
        choice_position_test([0, 1], 3)


def test_stopping_value_against_enumeration():
    draws = [-1.0, 0.5, 2.0]
    all_best = np.mean([max(0.0, *seen) for seen in itertools.product(draws, repeat=3)])
    assert stopping_value(draws, 1.0, 3) == pytest.approx(all_best)
    assert stopping_value(draws, 0.0, 3) == pytest.approx(np.mean([0, 0.5, 2]))
    assert stopping_value(draws, 0.5, 3) < stopping_value(draws, 0.9, 3) < all_best


def test_change_score_of_the_card():
    found = [change_score(said, 20) for said in (21, 25, 30, 40, 60, 100, 10**6)]
    np.testing.assert_allclose(found, [0.9989, 0.9673, 0.8917, 0.710, 0.441, 0.247, 0.199], atol=5e-4)
    assert [change_score(said, 20) for said in (None, 18, 19, 20)] == [-1, -1, 1, 1]


def test_the_beach_is_best_with_one_crowded_section():
    assert float(beach_capacity(np.array(7), 7)) == pytest.approx(2.575, abs=5e-4)
    assert 6 * float(beach_capacity(np.array(100 / 6), 7)) == pytest.approx(9.25, abs=5e-3)
    assert beach_optimum(50, 5, 4)[0] == pytest.approx(5.89, abs=5e-3)
    assert beach_optimum(20, 3, 3)[0] == pytest.approx(2.339, abs=5e-4)
    spreads = [s for s in itertools.product(range(8), repeat=3) if sum(s) == 7]
    assert beach_optimum(7, 3, 2)[0] == pytest.approx(max(beach_capacity(np.array(s), 2).sum() for s in spreads))


def test_utilities_prefer_balance_or_imbalance_and_their_order_matters():
    even, uneven, half = np.array([2.0, 2.0]), np.array([4.0, 0.0]), np.array([0.5, 0.5])
    assert linear(even, half) == linear(uneven, half)
    assert squares(even, half) < squares(uneven, half)
    assert product(even, half) > product(uneven, half)
    returns = np.random.default_rng(0).random((50, 2))
    assert esr(returns, linear, half) == pytest.approx(ser(returns, linear, half))
    assert esr(returns, product, half) < ser(returns, product, half)
    assert esr(returns, squares, half) > ser(returns, squares, half)


def test_information_gain_of_the_linear_model():
    belief = prior(Linear(), 4000)
    for x in (1.0, 2.0):
        exact = 0.5 * np.log1p(x**2)
        found = eig(Linear(), np.array([x]), belief, 4000, 300)
        assert found.value == pytest.approx(exact, abs=4 * found.se + 0.01)
        published = eig(Linear(), np.array([x]), belief, 30_000, 10, correct=False)
        assert published.value > exact + 4 * published.se
        assert exact - 0.02 < eig(Linear(), np.array([x]), belief, 30_000, 10).value < published.value


def test_nested_monte_carlo_agrees_with_enumeration():
    model = DeathProcess()
    belief = model.grid(100)
    for time in (0.2, 1.0, 3.0):
        found = eig(model, np.array([time]), belief, 4000, 400)
        assert found.value == pytest.approx(exact_eig(model, np.array([time]), belief), abs=4 * found.se + 0.005)
    with pytest.raises(InputError, match="infinitely many"):
        exact_eig(Linear(), np.array([1.0]), prior(Linear(), 10))


@pytest.mark.parametrize("name", MODELS)
def test_outcomes_come_as_likely_as_the_model_says(name):
    """Σ p = 1, or the mean of simulations is the model's mean; a belief that learns gets surer of the truth."""
    model, rng = MODELS[name](), np.random.default_rng(0)
    design = model.designs[len(model.designs) // 3]
    theta = model.sample(1, rng)
    many = np.repeat(theta, 4000, axis=0)
    drawn = model.simulate(many, design, rng)
    assert drawn.mean() == pytest.approx(
        float(model.mean(theta, design)[0]), abs=5 * drawn.std() / np.sqrt(4000) + 1e-9
    )
    if model.outcomes is not None:
        assert np.exp(
            model.loglik(model.outcomes, np.repeat(theta, len(model.outcomes), 0), design)
        ).sum() == pytest.approx(1)
    else:
        y = np.arange(2000.0) if name == "peregrines" else model.mean(theta, design)[0] + np.linspace(-5, 5, 2001)
        density = np.exp(model.loglik(y, np.repeat(theta, len(y), 0), design))
        assert density.sum() * (y[1] - y[0]) == pytest.approx(1)
    belief = prior(model, 500)
    truth = belief.theta[7]
    for n in range(20):
        chosen = model.designs[(5 * n) % len(model.designs)]
        belief = belief.update(model, chosen, float(model.simulate(truth[None], chosen, rng)[0]))
    assert belief.weights[7] > 1 / 500
    assert belief.weights.sum() == pytest.approx(1)
    assert (gains(model, belief, N=50, M=50) > -0.5).all()


@pytest.mark.parametrize(
    ("name", "theta", "design", "mean"),
    [
        ("linear", [2.0], [3.0], 6.0),
        ("death_process", [0.5], [2.0], 50 * (1 - np.exp(-1))),
        ("discounting", [np.log(0.01), 7.0], [50.0, 100.0], 0.5),  # 100 in 100 days is worth 50 now
        ("discounting", [np.log(0.01), 20.0], [30.0, 100.0], 0.01 + 0.98 * 0.8413447),  # 20 more, over α = 20: Φ(1)
        ("location_finding", [1.0, 1.0, 1.0, 3.0, 3.0, 2.0], [1.0, 2.0], 0.1 + 2 / 1.0001 + 1 / 4.0001),
        ("dugongs", [2.0, 1.5, -0.5], [2.0], 2 - 1.5 * 0.25),
        ("peregrines", [4.5, 1.2, 0.07, -0.24], [2.0], np.exp(4.5 + 2.4 + 0.28 - 1.92)),
    ],
)
def test_the_mean_of_an_outcome_by_its_formula(name, theta, design, mean):
    assert float(MODELS[name]().mean(np.array([theta]), np.array(design))[0]) == pytest.approx(mean)


def test_an_impossible_outcome_is_named():
    belief = ParticleBelief(np.array([[0.0]]), np.array([1.0]))
    with pytest.raises(InputError, match="no particle explains"):
        belief.update(DeathProcess(), np.array([1.0]), 3.0)


def test_the_priors_of_the_experiments_are_those_of_the_released_code() -> None:
    """Means and standard deviations of 20,000 draws, and worked means: location finding, dugongs, falcons, pupils."""
    rng = np.random.default_rng(0)
    drawn = {name: MODELS[name]().sample(20_000, rng) for name in ("dugongs", "peregrines", "item_response")}
    released = {
        "dugongs": ([2.0, 1.5, 0.4], [0.2, 0.5, 0.5]),
        "peregrines": ([4.5, 1.2, 0.07, -0.24], [0.1, 0.1, 0.01, 0.05]),
        "item_response": ([0.0] * 18, [1.0] * 18),
    }
    for name, (mean, sd) in released.items():
        assert drawn[name].mean(0) == pytest.approx(mean, abs=0.03)
        assert drawn[name].std(0) == pytest.approx(sd, rel=0.03)
    there = np.array([[0.0, 1.0, 1.0, 0.0, -1.0, 0.0]])  # three sources at distance 1 of the origin
    assert MODELS["location_finding"]().mean(there, np.zeros(2)) == pytest.approx([0.1 + 3 / 1.0001])
    cow = MODELS["dugongs"]().mean(np.array([[2.0, 1.5, -0.4]]), np.array([2.0]))
    assert cow == pytest.approx([2 - 1.5 * 0.16])
    assert (MODELS["peregrines"]().designs.min(), MODELS["peregrines"]().designs.max()) == (0, 5)
    pupil = np.zeros((1, 18))
    pupil[0, [0, 12]] = 1.0, -2.0  # the able fail where discrimination is negative
    assert MODELS["item_response"]().mean(pupil, np.array([0.0, 0.0])) == pytest.approx([1 / (1 + np.exp(2))])
