from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from palaestra.agents import BanditPolicy, Request, Team
from palaestra.agents.team import load_policy
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError, PolicyError

ARMS = np.array([0.6, 0.5, 0.5, 0.45, 0.4])


def seen(actions=5, array=None, mask=None):
    return Observation("?", tuple(f"arm {k}" for k in range(actions)), mask, array)


def regret(index, horizon=5000, seed=0, **options):
    """Pseudo-regret on Bernoulli arms, one play after the other, without the overhead of requests."""
    policy, rng = BanditPolicy(5, index=index, **options), np.random.default_rng(seed)
    plays = np.zeros(5)
    for _ in range(horizon):
        chances = policy.chances()
        arm = int(rng.choice(5, p=chances))
        policy.update([arm], [float(rng.random() < ARMS[arm])], propensities=[chances[arm]])
        plays[arm] += 1
    return float((0.6 - ARMS) @ plays)


@pytest.mark.parametrize(("index", "low", "high"), [("ucb1", 60, 165), ("epsilon", 20, 130)])
def test_the_worked_regrets_in_order(index, low, high):
    """The card's 5000 plays: UCB1 213, ε-greedy 73; here 2000, in which nothing can lose more than 400."""
    assert low < np.mean([regret(index, 2000, seed) for seed in range(2)]) < high


def test_thompsons_probabilities_are_those_of_its_draws():
    policy = BanditPolicy(3, index="thompson")
    policy.update([0] * 10 + [1] * 4 + [2], [1.0] * 6 + [0.0] * 4 + [1.0, 1.0, 0.0, 0.0] + [1.0])
    rng = np.random.default_rng(0)
    draws = rng.beta([7, 3, 2], [5, 3, 1], size=(200_000, 3)).argmax(1)
    assert policy.chances() == pytest.approx(np.bincount(draws) / 200_000, abs=0.006)


def test_an_adversary_starves_ucb_and_not_exp3():
    """Zero reward on the arm that the learner is likeliest to take, one elsewhere: the best arm earns half or more."""
    earned = {}
    for index in ("ucb1", "exp3"):
        policy, rng, total, best = BanditPolicy(2, index=index, rate=0.04), np.random.default_rng(0), 0.0, np.zeros(2)
        for _ in range(2000):
            chances = policy.chances()
            rewards = np.ones(2)
            rewards[chances.argmax()] = 0.0
            arm = int(rng.choice(2, p=chances))
            policy.update([arm], [rewards[arm]], propensities=[chances[arm]])
            total, best = total + rewards[arm], best + rewards
        earned[index] = total, best.max()
    assert earned["ucb1"][0] < 0.02 * earned["ucb1"][1]
    total, best = earned["exp3"]
    assert best - total <= 2 * np.sqrt(2 * 2000 * 2 * np.log(2))


def test_a_budget_wants_reward_per_cost():
    """The card's knapsack: r = (.9, .6, .5), c = (1, .3, .4), a budget: r / c is best for the second arm."""
    reward, cost = np.array([0.9, 0.6, 0.5]), np.array([1.0, 0.3, 0.4])
    earned = {}
    for index in ("ucb1", "ratio_ucb"):
        policy, rng, left, total = BanditPolicy(3, index=index), np.random.default_rng(0), 150.0, 0.0
        while left > 0:
            arm = int(rng.choice(3, p=policy.chances()))
            got = float(rng.random() < reward[arm])
            policy.update([arm], [got], costs=[cost[arm]])
            left, total = left - cost[arm], total + got
        earned[index] = total
    assert earned["ratio_ucb"] > 1.3 * earned["ucb1"]


def test_linucb_is_ridge_regression_and_its_inverse_is_exact():
    rng = np.random.default_rng(0)
    policy = BanditPolicy(4, index="linucb", features=3, shared=True, width=0.5)
    contexts, arms = rng.normal(size=(500, 4, 3)), rng.integers(0, 4, 500)
    for context, arm in zip(contexts, arms):
        policy.update([arm], [float(context[arm] @ [1, 2, 3])], contexts=context.reshape(1, -1))
    rows = policy.contexts(contexts.reshape(500, -1))[np.arange(500), arms]
    precision = np.eye(3) + rows.T @ rows
    rewards = (contexts[np.arange(500), arms] * [1, 2, 3]).sum(1)
    theta = np.linalg.solve(precision, rows.T @ rewards)
    probe = rng.uniform(0, 0.3, size=(2, 4, 3))
    spread = np.sqrt(np.einsum("nai,ij,naj->na", probe, np.linalg.inv(precision), probe))
    assert policy.scores(probe) == pytest.approx(probe @ theta + 0.5 * spread, abs=1e-10)


def test_linucb_finds_what_a_context_says_where_counts_cannot():
    rng = np.random.default_rng(0)
    policies = {"linucb": BanditPolicy(2, index="linucb", features=2), "ucb1": BanditPolicy(2, index="ucb1")}
    right = dict.fromkeys(policies, 0)
    for at in range(400):
        better = int(rng.integers(2))
        array = np.array([[1.0, better == 0], [1.0, better == 1]], np.float32)
        for name, policy in policies.items():
            decision = policy.act([Request(seen(2, array), "a", rng)])[0]
            policy.update([decision.action], [float(decision.action == better)], contexts=array.reshape(1, -1))
            right[name] += at >= 200 and decision.action == better
    assert right["linucb"] > 190
    assert 70 < right["ucb1"] < 130


def test_a_model_for_each_arm_reads_one_context():
    policy = BanditPolicy(2, index="linucb", features=2, shared=False, width=0.0)
    array = np.array([1.0, 0.0], np.float32)
    policy.update([0, 1, 1], [0.2, 0.8, 0.6], contexts=np.array([array] * 3))
    assert policy.act([Request(seen(2, array), "a", np.random.default_rng(0))])[0].action == 1
    with pytest.raises(PolicyError, match="linucb with features=2 wants as many"):
        policy.contexts(np.zeros((1, 3)))
    with pytest.raises(PolicyError, match="one row of 2 numbers for all 2 arms, which needs shared: false"):
        BanditPolicy(2, index="linucb", features=2).contexts(np.zeros((1, 2)))


def test_probabilities_are_what_is_drawn_and_recorded_and_illegal_arms_have_none():
    policy = BanditPolicy(4, index="epsilon", width=0.4)
    policy.update([0, 1, 2, 3], [0.1, 0.9, 0.2, 0.3])
    rng = np.random.default_rng(0)
    decisions = policy.act([Request(seen(4), "a", rng) for _ in range(4000)])
    share = np.bincount([d.action for d in decisions], minlength=4) / 4000
    assert share == pytest.approx([0.1, 0.7, 0.1, 0.1], abs=0.03)
    assert {round(float(np.exp(d.logprobs[0])), 4) for d in decisions} == {0.1, 0.7}
    mask = np.array([True, False, True, False])
    chances, illegal = policy.choice_probabilities([seen(4, mask=mask)])
    assert chances[0] == pytest.approx([0.2, 0.0, 0.8, 0.0])
    assert illegal.tolist() == [0.0]


def test_what_changes_is_forgotten_at_its_rate():
    policy = BanditPolicy(2, index="epsilon", width=0.0, discount=0.5)
    policy.update([0, 1], [1.0, 0.0])
    policy.update([1], [1.0])
    assert policy.table()["plays"].to_list() == [0.5, 1.5]
    assert policy.table()["reward"].to_list() == pytest.approx([1.0, 2 / 3])


def test_state_is_kept_exactly(tmp_path):
    policy = BanditPolicy(3, index="linucb", features=2, shared=False, discount=0.9, name="route")
    policy.update([0, 2], [1.0, 0.5], contexts=np.ones((2, 2)))
    policy.save(tmp_path / "route")
    loaded = load_policy(tmp_path / "route")
    assert isinstance(loaded, BanditPolicy)
    for name, value in policy.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[name])
    before = policy.state_dict()
    policy.update([1], [1.0], contexts=np.ones((1, 2)))
    assert not torch.equal(before["count"], policy.state_dict()["count"])
    assert Team(route=policy).trainable == []


@pytest.mark.parametrize(
    "options", [{"index": "ucb2"}, {"index": "linucb"}, {"rate": 0}, {"discount": 1.5}, {"width": -1}, {"actions": 0}]
)
def test_options_are_checked(options):
    with pytest.raises(InputError):
        BanditPolicy(**{"actions": 3, **options})


def test_arms_are_discovered_one_by_one():
    policy = BanditPolicy(6, theta=1.0)
    assert policy.chances() == pytest.approx([1, 0, 0, 0, 0, 0])  # nobody is known
    policy.update([0, 1], [0.0, 1.0])
    assert policy.chances() == pytest.approx([0, 2 / 3, 1 / 3, 0, 0, 0])  # one of three is new
    legal = np.array([True, False, False, True, True, True])
    assert policy.chances(legal) == pytest.approx([2 / 3, 0, 0, 1 / 3, 0, 0])
    policy.update([2, 3, 4, 5], [0.0] * 4)
    assert policy.chances().argmax() == 1
    with pytest.raises(InputError, match="theta"):
        BanditPolicy(2, index="exp3", theta=1.0)
    with pytest.raises(InputError, match="clock"):
        BanditPolicy(2, clock="rounds")


def test_only_arms_of_an_archive_are_taken_and_others_join(tmp_path):
    policy = BanditPolicy(5, name="staff", archive=[1, 3])
    assert policy.chances() == pytest.approx([0, 0.5, 0, 0.5, 0])
    policy.update([1, 3], [0.2, 0.9])
    policy.join(4)
    assert policy.joined() == [1, 3, 4]
    assert policy.chances() == pytest.approx([0, 0, 0, 0, 1])  # the newcomer, which was never taken
    policy.update([4], [0.5])
    assert policy.chances().argmax() == 3
    assert policy.chances(np.array([True, True, True, False, False])).argmax() == 1
    assert BanditPolicy(3).joined() == [0, 1, 2]
    policy.save(tmp_path)
    assert BanditPolicy.load(tmp_path).joined() == [1, 3, 4]
    settings = json.loads((tmp_path / "palaestra.json").read_text())
    with pytest.raises(PolicyError, match="no arm of its archive of 3"):
        policy.chances(np.array([True, False, True, False, False]))
    with pytest.raises(InputError, match="all arms may be taken"):
        BanditPolicy(3).join(1)
    for options in ({"archive": [5]}, {"archive": [-1]}, {"archive": [0], "index": "linucb", "features": 1}):
        with pytest.raises(InputError, match="must be arms from 0 to 4"):
            BanditPolicy(5, **options)
    assert settings["archive"] == [1, 3]


def test_a_policy_saved_before_there_were_archives_can_be_loaded(tmp_path):
    BanditPolicy(3).save(tmp_path)
    settings = json.loads((tmp_path / "palaestra.json").read_text())
    assert settings.pop("archive", 0) is None
    (tmp_path / "palaestra.json").write_text(json.dumps(settings))
    assert BanditPolicy.load(tmp_path).joined() == [0, 1, 2]


def test_a_row_may_stand_for_several_plays_and_the_clock_may_count_updates():
    one, many = BanditPolicy(2), BanditPolicy(2, clock="updates")
    one.update([0] * 4 + [1] * 4, [1.0, 1.0, 0.0, 0.0] + [0.5] * 4)
    many.update([0, 1], [0.5, 0.5], weights=[4, 4])
    assert many._get("count") == pytest.approx(one._get("count"))
    assert many._get("reward") == pytest.approx(one._get("reward"))
    assert many._get("gain") == pytest.approx(one._get("gain")), "what exp3 goes by"
    for _ in range(3):
        many.update([0], [0.4])
    index = many._get("reward") / many._get("count") + np.sqrt(2 * np.log(4) / many._get("count"))
    assert many.chances().argmax() == index.argmax()


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("discount", [1.0, 0.99])
def test_the_inverses_are_those_of_the_matrices(shared, discount):
    policy, rng = (
        BanditPolicy(3, index="linucb", features=6, shared=shared, discount=discount),
        np.random.default_rng(0),
    )
    for size in (1, 2, 1, 40, 5):
        shown = rng.normal(size=(size, 18))
        policy.update(rng.integers(0, 3, size), rng.random(size), contexts=shown)
    precision, inverse = policy._get("precision"), policy._get("inverse")
    assert inverse == pytest.approx(np.linalg.inv(precision), abs=1e-10)
    x = policy.contexts(rng.normal(size=(4, 18)))
    theta = np.linalg.solve(precision, policy._get("target")[..., None])[..., 0]
    for row, found in zip(x, policy.scores(x)):
        for arm in range(3):
            model = 0 if shared else arm
            width = np.sqrt(row[arm] @ np.linalg.inv(precision[model]) @ row[arm])
            assert found[arm] == pytest.approx(theta[model] @ row[arm] + width)


def test_a_contest_gives_work_to_those_who_earn_steadily():
    policy = BanditPolicy(3, index="contest", rate=0.1)
    assert policy.chances() == pytest.approx([1 / 3] * 3)  # who was never taken comes first
    policy.update([0, 0, 1, 1, 2, 2], [0.5, 1.5, -0.5, 0.1, 2.0, 4.0])  # means 1, -.2, 3; deviations .5, .3, 1
    assert policy.chances() == pytest.approx([0.9 * 2 / 5 + 0.1 / 3, 0.1 / 3, 0.9 * 3 / 5 + 0.1 / 3])
    assert policy.chances(np.array([True, True, False])) == pytest.approx([0.95, 0.05, 0.0])
    policy.update([0] * 9 + [2] * 9, [-1.0] * 9 + [-2.0] * 9)
    assert policy.chances() == pytest.approx([1 / 3] * 3)  # nobody earns


def test_the_best_arms_have_the_best_means_and_untried_ones_count_as_nothing():
    policy = BanditPolicy(4, index="ucb1")
    policy.update(np.array([1, 3, 3]), np.array([0.4, 0.6, 0.8]))
    assert policy.best(2) == [3, 1]
    assert policy.best(3) == [3, 1, 0]
