"""Along the turns: worked numbers of [168] and [59], and what GAE promises."""

from __future__ import annotations

import numpy as np
import pytest
from tests.tables import values

from palaestra.algebra.parse import parse
from palaestra.algebra.signals import col, evaluate
from palaestra.algebra.turns import Ragged, Turns
from palaestra.credit import gae, igpo, on_last_token, return_to_go, tppo, value_target
from palaestra.errors import ExpressionError
from palaestra.testing.signal import sample_turns


def window(truncated: bool, reward: float = 0.0) -> Turns:
    keys = {"episode": [0] * 3, "turn": [0, 1, 2], "agent": ["a"] * 3, "truncated": [truncated] * 3}
    return Turns(keys | {"value": [0.2, 0.5, 0.4], "reward": [0.0, 0.0, reward]})


def test_a_window_that_was_cut_off_repeats_its_last_value() -> None:
    np.testing.assert_allclose(values(tppo(), window(True)), [0.205, -0.1, 0], atol=1e-12)
    np.testing.assert_allclose(values(tppo(lam=1), window(True)), [0.2, -0.1, 0], atol=1e-12)
    np.testing.assert_allclose(values(gae(bootstrap=0), window(True)), [-0.156, -0.48, -0.4], atol=1e-12)
    np.testing.assert_allclose(values(tppo(), window(False, 1.0)), [0.7465, 0.47, 0.6], atol=1e-12)


def test_a_critic_that_knows_nothing_gives_a_cut_off_window_no_signal() -> None:
    turns = window(True).with_column(value=[0.0] * 3)
    np.testing.assert_array_equal(values(tppo(), turns), 0)


def test_the_critic_learns_from_finished_episodes_only() -> None:
    np.testing.assert_array_equal(values(value_target(), window(True, 1.0)), np.nan)
    np.testing.assert_array_equal(values(value_target(gamma=0.5), window(False, 1.0)), [0.25, 0.5, 1])


def test_gae_with_lambda_one_is_the_return_minus_the_value() -> None:
    turns = sample_turns(np.random.default_rng(0), groups=(3, 4), simultaneous=True)
    turns = turns.with_column(value=np.random.default_rng(1).random(len(turns)))
    found = values(gae(lam=1, gamma=0.9), turns)
    np.testing.assert_allclose(found, values(return_to_go(gamma=0.9) - parse("value", columns=["value"]), turns))


def test_a_missing_reward_adds_nothing_to_gae_as_to_the_return_to_go() -> None:
    turns = window(False).with_column(reward=[None, None, 1.0])
    np.testing.assert_allclose(values(gae(), turns), values(gae(), window(False, 1.0)))
    for reward in ([None, 0.5, None], [None] * 3):
        some = turns.with_column(reward=reward)
        np.testing.assert_allclose(values(gae(lam=1), some), values(return_to_go() - col("value"), some))


def test_a_turn_without_a_value_leaves_unknown_what_rests_on_it() -> None:
    rows = {"episode": [0] * 4, "turn": [0, 1, 2, 3], "agent": ["a"] * 4, "reward": [0.0, 0.0, 0.0, 1.0]}
    turns = Turns(rows | {"value": [0.2, 0.3, None, 0.5]})
    np.testing.assert_allclose(values(gae(bootstrap=0), turns), [np.nan, np.nan, np.nan, 0.5])
    np.testing.assert_allclose(values(gae(bootstrap=0, lam=0), turns), [0.1, np.nan, np.nan, 0.5])
    last = Turns(rows | {"value": [0.2, 0.3, 0.4, None]})
    assert np.isnan(values(gae(bootstrap=0), last)).all()
    np.testing.assert_allclose(values(gae(bootstrap=0, lam=0), last), [0.1, 0.1, np.nan, np.nan])


def test_gae_passes_over_what_nobody_chose() -> None:
    rows = {"episode": [0] * 4, "turn": range(4), "agent": ["a"] * 4, "value": [0.2, 9.0, 0.5, 7.0]}
    turns = Turns(rows | {"reward": [0.0, 0.0, 1.0, 0.0], "seen": [False, True, False, True]})
    expected = gae(bootstrap=0.0).evaluate(Turns(turns.frame[[0, 2]]))
    found = values(gae(bootstrap=0.0, skip="seen"), turns)
    np.testing.assert_allclose(found[[0, 2]], np.asarray(expected))
    assert np.isnan(found[[1, 3]]).all()


@pytest.mark.parametrize("paid", [[0.0, 0.3, 0.0, 0.2, 1.0, 0.0], [0.3, 0.0, 0.2, 0.0, 0.0, 1.0]])
def test_what_is_paid_while_nobody_acts_is_the_last_action_s(paid: list[float]) -> None:
    rows = {"value": [0.2, 9.0, 0.5, 9.0, 0.4, 9.0], "reward": paid, "seen": [False, True] * 3}
    whole = Turns({"episode": [0] * 6, "agent": ["a"] * 6} | rows)
    short = Turns({"episode": [0] * 3, "agent": ["a"] * 3, "value": [0.2, 0.5, 0.4], "reward": [0.3, 0.2, 1.0]})
    found = values(gae(bootstrap=0.0, skip="seen"), whole)
    np.testing.assert_allclose(found[::2], values(gae(bootstrap=0.0), short), atol=1e-12)


def test_gae_of_tokens_runs_through_the_turns_of_an_agent() -> None:
    turns = Turns(
        {
            "episode": [0, 0], "turn": [0, 1], "agent": ["a", "a"], "truncated": [False, False],
            "reward": [0.0, 1.0], "values": [[0.2], [0.5, 0.4]],
        }
    )  # fmt: skip
    found = gae("values", on_last_token("reward", like="values")).evaluate(turns)
    assert isinstance(found, Ragged)
    np.testing.assert_array_equal(found.lengths, [1, 2])
    np.testing.assert_allclose(found.values, [0.7465, 0.47, 0.6])


def three_rollouts() -> Turns:
    """Log-probabilities before each of three turns, so that the gains are [.5, .2], [.1, -.2], [.3, .6]."""
    gains = np.array([[0.0, 0.5, 0.2], [0.0, 0.1, -0.2], [0.0, 0.3, 0.6]])
    reward = np.array([[0, 0, 1.0], [0, 0, 0], [0, 0, 1]])
    keys = {"group": [0] * 9, "episode": np.repeat([0, 1, 2], 3), "turn": [0, 1, 2] * 3, "agent": ["a"] * 9}
    return Turns(keys | {"reward": reward.ravel(), "gold_logprob": gains.cumsum(axis=1).ravel() - 3})


def test_igpo_standardises_gains_and_outcomes_apart() -> None:
    expected = [1.2716, 0.4038, 0.5773, -3.2373, -2.7167, -1.1547, 1.9658, 1.7922, 0.5773]
    np.testing.assert_allclose(values(igpo(), three_rollouts()), expected, atol=2e-4)
    np.testing.assert_allclose(values(parse("igpo(gamma=0)"), three_rollouts())[[0, 4]], [0.8678, -1.5620], atol=1e-4)
    assert values(igpo(gamma=0, ddof=0), three_rollouts())[0] == pytest.approx(0.9506, abs=1e-4)


def test_the_released_igpo_takes_probabilities_and_no_deviation() -> None:
    keys = {"group": [0] * 8, "episode": np.repeat([0, 1], 4), "turn": [0, 1, 2, 3] * 2, "agent": ["a"] * 8}
    table = {"reward": [0.0] * 8, "gold_logprob": [-3.0, -2.0, -2.2, -0.5] + [-3.0] * 4}
    gains = [0.0855, -0.0245, 0.4957]
    to_go = np.append(np.cumsum(gains[::-1])[::-1], 0)
    np.testing.assert_allclose(values(igpo(flavour="code"), Turns(keys | table))[:4], to_go / 2, atol=2e-4)


def test_the_cookbooks_outcome_counts_every_turn() -> None:
    outcome = np.array([0, 0, 1, 0, 0, 0, 0, 0, 1.0])
    z = (outcome - outcome.mean()) / outcome.std()
    found = values(igpo(flavour="cookbook", gamma=0), three_rollouts())
    np.testing.assert_allclose(found[[2, 5, 8]], z[[2, 5, 8]], rtol=1e-6)
    assert found[0] == pytest.approx(0.9506, abs=1e-4)
    once = values(igpo(flavour="cookbook"), three_rollouts())
    assert once[1] == pytest.approx(found[1] + 0.95 * found[2])


def test_an_unknown_flavour_is_named() -> None:
    with pytest.raises(ExpressionError, match="did you mean 'code'"):
        igpo(flavour="cod")  # type: ignore[arg-type]


def test_a_reward_on_the_last_token_keeps_its_sum() -> None:
    turns = sample_turns(np.random.default_rng(0), groups=(3,))
    (found,) = evaluate(turns, on_last_token("reward"))
    assert isinstance(found, Ragged)
    np.testing.assert_allclose(found.values.sum(), turns["reward"].sum())
    np.testing.assert_array_equal(found.values[np.cumsum(found.lengths) - 1], turns["reward"].to_numpy())
