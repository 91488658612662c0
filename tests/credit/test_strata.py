"""Baselines over computed keys: worked numbers of [57], [67], [78], [195] and their identities."""

from __future__ import annotations

import numpy as np
import pytest
from tests.tables import values

from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.credit import advevo_marl, batch_score, canon, centre, dr_grpo, reinforce, salt, stratified_grpo
from palaestra.errors import ExpressionError
from palaestra_atlas.catalog.credit.s078_salt import worked as salt_worked


def single(rewards: list[float], **columns: object) -> Turns:
    n = len(rewards)
    table = {"group": [0] * n, "episode": range(n), "turn": [0] * n, "agent": ["a"] * n, "reward": rewards}
    return Turns(table | columns)


@pytest.mark.parametrize(
    ("rewards", "metric", "between", "within"),
    [
        (
            [1, 1, 0, 0, 1, 0],
            [0.9, 0.8, 0.7, 0.3, 0.2, 0.1],
            [0.6667, 0.6667, -0.3333, -0.6667, 0.3333, -0.6667],
            [0.3333, 0.3333, -0.6667, -0.3333, 0.6667, -0.3333],
        ),
        ([1, 0, 1], [0.1, 0.2, 0.3], [0.5, -1, 0], [0, -0.5, 0.5]),
        ([1, 1, 0, 0], [0.9, 0.8, 0.2, 0.1], [1, 1, -1, -1], [0, 0, 0, 0]),
        ([1], [0.5], [1], [0]),
    ],
)
def test_canon_worked_numbers(
    rewards: list[float], metric: list[float], between: list[float], within: list[float]
) -> None:
    turns = single(rewards, cost=metric, entropies=[[m, m] for m in metric])
    np.testing.assert_allclose(values(canon(metric="cost"), turns), between, atol=1e-4)
    np.testing.assert_allclose(values(canon(metric="cost", mu=0.0), turns), within, atol=1e-4)
    np.testing.assert_allclose(values(canon(length=8192), turns), np.array(between) / 8192, atol=1e-8)


def test_canon_with_even_halves_and_equal_weights_is_dr_grpo() -> None:
    rng = np.random.default_rng(0)
    groups, size = 100, 8
    n = groups * size
    turns = Turns(
        {
            "group": np.repeat(np.arange(groups), size),
            "episode": np.tile(np.arange(size), groups),
            "agent": ["a"] * n,
            "reward": rng.normal(size=n),
            "cost": rng.random(n),
        }
    )
    np.testing.assert_allclose(values(canon(metric="cost", mu=0.5), turns), values(dr_grpo(), turns), atol=1e-12)


def test_canon_directs_credit_to_the_favoured_half() -> None:
    turns = single([1.0, 0.0, 1.0, 0.0], cost=[4.0, 3.0, 2.0, 1.0])  # both halves have mean .5
    high = values(canon(metric="cost", alpha=0.8, beta=0.1), turns)
    np.testing.assert_allclose(high, [1 - 0.4 + 0.1, -0.4 + 0.1, 0.8 - 0.5 - 0.1, -0.5 - 0.1])
    low = values(canon(metric="cost", alpha=0.8, favour="low"), turns)
    np.testing.assert_allclose(low, [0.8 - 0.5, -0.5, 1 - 0.4, -0.4])
    with pytest.raises(ExpressionError, match="favour='hihg'; did you mean 'high'"):
        canon(favour="hihg")  # type: ignore[arg-type]


def test_canon_takes_a_schedule() -> None:
    turns = single([1.0, 0.0, 1.0], cost=[0.1, 0.2, 0.3])
    blend = values(canon(metric="cost", mu=batch_score()), turns)
    np.testing.assert_allclose(blend, 2 / 3 * np.array([0.5, -1, 0]) + 1 / 3 * np.array([0, -0.5, 0.5]))


STRATIFIED = single([1.0, 0, 1, 1, 0, 0, 0, 1], stratum=[0, 0, 0, 0, 1, 1, 1, 1])


def test_stratified_worked_numbers() -> None:
    within = np.array([0.5773, -1.7320, 0.5773, 0.5773, -0.5773, -0.5773, -0.5773, 1.7320])
    blend = [0.7464, -1.4392, 0.7464, 0.7464, -0.7464, -0.7464, -0.7464, 1.4392]
    np.testing.assert_allclose(values(stratified_grpo(stratum="stratum", alpha=1.0), STRATIFIED), within, atol=1e-4)
    np.testing.assert_allclose(values(stratified_grpo(stratum="stratum"), STRATIFIED), blend, atol=1e-4)
    np.testing.assert_allclose(np.abs(values(stratified_grpo(alpha=0.0), STRATIFIED)), 1, atol=1e-5)


def test_strata_remove_the_variance_between_them_and_credit_inside_sums_to_zero() -> None:
    inside = values(centre("reward", over=("group", "stratum")), STRATIFIED)
    outside = values(centre("reward", over="group"), STRATIFIED)
    assert np.mean(outside**2) == pytest.approx(0.25)
    assert np.mean(inside**2) == pytest.approx(0.1875)
    np.testing.assert_allclose(outside - inside, [0.25] * 4 + [-0.25] * 4)
    credit = values(stratified_grpo(stratum="stratum", alpha=1.0), STRATIFIED).reshape(2, 4)
    np.testing.assert_allclose(credit.sum(axis=1), 0, atol=1e-12)


def test_alone_in_its_stratum_an_episode_has_the_global_term_only() -> None:
    turns = single([1.0, 0.0, 0.0], stratum=[0, 1, 1])
    result = values(stratified_grpo(stratum="stratum", alpha=1.0), turns)
    np.testing.assert_array_equal(result, 0)


def test_salt_worked_numbers() -> None:
    turns, expected = salt_worked()
    np.testing.assert_allclose(values(salt(), turns), expected, atol=1e-4)


def test_public_baseline_worked_numbers() -> None:
    turns = Turns(
        {
            "group": [0] * 8,
            "episode": [0, 0, 0, 0, 1, 1, 1, 1],
            "agent": ["defender_0", "defender_1", "defender_2", "attacker_0"] * 2,
            "reward": [1.0, 1.0, 0.5, 0.0, 0.0, 0.5, 0.0, 1.0],
        }
    )
    public = [0.5, 0.5, 0, -0.5, -0.5, 0, -0.5, 0.5]
    np.testing.assert_allclose(values(advevo_marl(), turns), public)
    np.testing.assert_allclose(values(parse("public_baseline(teams=team(('attacker_0',)))"), turns), public)
    own = [0.5, 0.25, 0.25, -0.5, -0.5, -0.25, -0.25, 0.5]
    np.testing.assert_allclose(values(reinforce(over="agent"), turns), own)
    np.testing.assert_allclose(values(advevo_marl(teams="agent"), turns), own)
