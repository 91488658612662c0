"""Decomposition: worked numbers of [29] and [49], planted step rewards, and that RRD has the loss of RD on average."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import check_grad
from tests.tables import values

from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.credit import (
    ReturnDecomposition,
    decompose,
    implicit_reward,
    oprl,
    pairwise_logistic,
    redistribute,
    return_to_go,
    spa,
    spa_reward,
)
from palaestra.errors import InputError
from palaestra.testing import check_signal
from palaestra.testing.signal import sample_turns

PLANTED = np.array([0.0, 0.1, 0.3, -0.2, 0.5, 0.05])


def play(episodes: int, rng: np.random.Generator, size: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Features one-hot by kind of turn, and the episode of each row; 3 to 12 turns each."""
    length = rng.integers(3, 13, episodes)
    return np.eye(size)[rng.integers(size, size=length.sum())], np.repeat(np.arange(episodes), length)


@pytest.mark.parametrize("average", [False, True])
def test_planted_step_rewards_are_recovered(average: bool) -> None:
    x, episode = play(400, np.random.default_rng(0))
    returns = np.bincount(episode, x @ PLANTED)
    model = ReturnDecomposition(6, average=average, ridge=0).add(x, episode, returns)
    np.testing.assert_allclose(model.weights, PLANTED, atol=1e-9)
    np.testing.assert_allclose(model.predict(x), x @ PLANTED, atol=1e-9)


def test_adding_in_parts_is_adding_the_whole() -> None:
    rng = np.random.default_rng(0)
    x, episode = play(20, rng)
    returns = rng.random(20)
    whole = ReturnDecomposition(6).add(x, episode, returns)
    first = episode < 8
    parts = ReturnDecomposition(6).add(x[first], episode[first], returns[:8])
    parts.add(x[~first], episode[~first] - 8, returns[8:])
    np.testing.assert_allclose(parts.weights, whole.weights)


def test_random_subsets_have_the_loss_of_the_whole_in_expectation() -> None:
    rng = np.random.default_rng(0)
    x, episode = play(5, rng)
    returns = rng.random(5)
    whole = ReturnDecomposition(6, average=True).add(x, episode, returns)
    drawn = ReturnDecomposition(6, method="rrd", steps=3)
    for _ in range(4000):
        drawn.add(x, episode, returns, rng=rng)
    np.testing.assert_allclose(drawn.squares / 4000, whole.squares, atol=0.01)
    np.testing.assert_allclose(drawn.products / 4000, whole.products, atol=0.01)


def test_the_result_is_a_signal_that_says_what_each_factor_is_worth() -> None:
    turns = sample_turns(np.random.default_rng(0), groups=(6, 6), simultaneous=True)
    reward = 2.0 * turns["cost"] - 0.5 * turns["duration"]
    turns = turns.with_column(reward=reward)
    found = decompose(turns, ["cost", "duration"], model=ReturnDecomposition(2, ridge=0))
    np.testing.assert_allclose(values(found, turns), reward.to_numpy())
    np.testing.assert_allclose(values(parse(str(found)), turns), reward.to_numpy())
    np.testing.assert_allclose(values(redistribute("cost", "duration", ridge=0), turns), reward.to_numpy())


def test_every_batch_is_fitted_alone_and_unscored_episodes_take_no_part() -> None:
    signal = redistribute("cost", "duration", 1.0, ridge=1e-3)
    check_signal(signal)
    turns = sample_turns(np.random.default_rng(0), groups=(4, 4))
    lost = turns["reward"].to_numpy().copy()
    lost[turns.codes("episode").ids == 0] = np.nan
    some = turns.with_column(reward=lost)
    others = turns.codes("episode").ids != 0
    kept = Turns(some.frame.filter(others))
    np.testing.assert_allclose(values(signal, some)[others], values(signal, kept))


def test_what_does_not_fit_is_named() -> None:
    model = ReturnDecomposition(2)
    with pytest.raises(InputError, match=r"features \(3, 1\) for 3 rows, 1 episodes and 2 factors"):
        model.add(np.zeros((3, 1)), np.zeros(3, int), np.zeros(1))
    with pytest.raises(InputError, match="is not finite"):
        model.add(np.full((1, 2), np.nan), np.zeros(1, int), np.zeros(1))
    with pytest.raises(InputError, match="give rng"):
        ReturnDecomposition(1, method="rrd").add(np.zeros((1, 1)), np.zeros(1, int), np.zeros(1))
    with pytest.raises(InputError, match="no factors"):
        decompose(sample_turns(np.random.default_rng(0)), [])
    with pytest.raises(InputError, match="one value per token"):
        decompose(sample_turns(np.random.default_rng(0)), ["entropies"])


def two_episodes() -> Turns:
    """Log-ratios [2, -1, 3] of a success and [0, 1] of a failure."""
    keys = {"group": [0] * 5, "episode": [0] * 3 + [1] * 2, "turn": [0, 1, 2, 0, 1], "agent": ["a"] * 5}
    tokens = {"prm_logprobs": [[1.5, 0.0], [-2.0], [2.5], [-1.0], [0.0]]}
    tokens |= {"logprobs": [[0.5, -1.0], [-1.0], [-0.5], [-1.0], [-1.0]]}
    return Turns(keys | {"reward": [0, 0, 1, 0, 0.0]} | tokens)


def test_worked_implicit_rewards() -> None:
    turns = two_episodes()
    steps = values(implicit_reward(), turns)
    np.testing.assert_allclose(steps, [0.1, -0.05, 0.15, 0, 0.05])
    np.testing.assert_allclose(values(return_to_go(implicit_reward()), turns) / 0.2, [1, 0.5, 0.75, 0.25, 0.25])
    scaled = np.array([0.5, -0.25, 0.75, 0, 0.25])
    others = (scaled.sum() - scaled) / 4
    np.testing.assert_allclose(values(oprl(), turns), np.array([1, 1, 1, -1, -1]) + scaled - others, atol=1e-4)
    released = [1, 1, 1, -1, -1] + 2 * (scaled - (0.5 + 0) / 2)
    np.testing.assert_allclose(values(oprl(flavour="code"), turns), released, atol=1e-4)


def test_the_pairwise_loss_and_its_gradient() -> None:
    score = np.array([0.2 / 3, 0.05 / 2])
    assert pairwise_logistic(score, np.array([1, 0]), np.zeros(2, int))[0] == pytest.approx(0.6725, abs=1e-4)
    rng = np.random.default_rng(0)
    outcome, group = rng.integers(3, size=9).astype(float), np.repeat([0, 1, 2], [4, 4, 1])
    loss = lambda q: pairwise_logistic(q, outcome, group)[0]  # noqa: E731
    slope = lambda q: pairwise_logistic(q, outcome, group)[1]  # noqa: E731
    assert check_grad(loss, slope, rng.normal(size=9)) < 1e-6
    assert pairwise_logistic(np.zeros(3), np.ones(3), np.zeros(3, int))[0] == 0


def test_worked_progress_rewards() -> None:
    keys = {"group": [0] * 3, "episode": [0] * 3, "turn": [0, 1, 2], "agent": ["a"] * 3}
    turns = Turns(keys | {"progress": [0.2, -0.1, 0.6], "done": [1, 0, 0], "value": [0.0, 0.0, 0.0]})
    np.testing.assert_allclose(values(spa_reward(executed="done"), turns), [0.7, -0.1, 1.1])
    np.testing.assert_allclose(values(spa(executed="done", value="value", lam=1), turns.with_column(
        truncated=[False] * 3)), [1.7, 1.0, 1.1])  # fmt: skip
    standard = values(spa(executed="done", over="group"), turns)
    to_go = np.array([1.7, 1.0, 1.1])
    np.testing.assert_allclose(standard, (to_go - to_go.mean()) / to_go.std(ddof=1), rtol=1e-5)
    two = Turns.concat([turns, turns.with_column(episode=[1] * 3, progress=[0.0, 0.1, 0.2])])
    later = np.array([[1.7, 1.0, 1.1], [1.3, 0.8, 0.7]])  # by turn: the higher of two is √½ above their mean
    np.testing.assert_allclose(
        values(spa(executed="done"), two), np.sign(later - later[::-1]).ravel() / 2**0.5, rtol=1e-4
    )
