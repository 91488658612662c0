"""Opponents: worked numbers of [50], its options, and who the opponent is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.credit import advantage_alignment, alignment_weight, opponent
from palaestra.errors import ExpressionError, InputError
from palaestra.testing.signal import sample_turns, shuffled

ONE, OTHER = [1, -1, 0.5], [0.5, 2, -1]


def game() -> Turns:
    keys = {"group": [0] * 6, "episode": [0] * 6, "turn": [0, 0, 1, 1, 2, 2], "agent": ["x", "y"] * 3}
    return Turns(keys | {"a": np.ravel([ONE, OTHER], order="F"), "reward": np.ravel([ONE, OTHER], order="F")})


def credit(**options: Any) -> np.ndarray:
    return np.asarray(advantage_alignment(advantage="a", **options).evaluate(game()))[::2]


def weight(**options: Any) -> np.ndarray:
    return np.asarray(alignment_weight("a", **options).evaluate(game()))[::2]


def test_worked_weights_and_credit() -> None:
    np.testing.assert_allclose(weight(), [0, 0.9, -0.09])
    np.testing.assert_allclose(weight(flavour="code"), [0, 0.81, -0.081])
    np.testing.assert_allclose(weight(inclusive=True), [1, -0.1, 0.41])
    np.testing.assert_allclose(credit(flavour="code"), [1, -0.19, 0.5405])
    np.testing.assert_allclose(credit(inclusive=True), [1.25, -1.1, 0.295])
    np.testing.assert_allclose(credit(beta=0), ONE)


def test_options_of_the_released_code() -> None:
    w, other = np.array([0, 0.9, -0.09]), np.array(OTHER)
    np.testing.assert_allclose(credit(signs=True, beta=1), ONE + np.sign(w) * other)
    np.testing.assert_allclose(credit(limit=0.05), ONE + 0.5 * np.clip(w, -0.05, 0.05) * other)
    np.testing.assert_allclose(credit(by_turn=True), ONE + 0.5 * w / [1, 2, 3] * other)
    np.testing.assert_allclose(credit(first=1.0), ONE + 0.5 * np.array([1, 0.9, -0.09]) * other)
    np.testing.assert_allclose(credit(discounted=True), (ONE + 0.5 * w * other) * 0.9 ** np.arange(3))
    with pytest.raises(ExpressionError, match=r"signs=True needs beta=1, not 0\.5"):
        advantage_alignment(signs=True)


def test_the_baseline_is_the_mean_of_the_groups_other_episodes_at_the_same_turn() -> None:
    turns = sample_turns(np.random.default_rng(0), groups=(2,), longest=1, simultaneous=True)
    reward = turns["reward"].to_numpy()
    found = np.asarray(advantage_alignment(beta=0).evaluate(turns))
    np.testing.assert_allclose(found, reward - reward[[2, 3, 0, 1]])


def test_the_opponent_of_the_opponent_is_oneself() -> None:
    turns = shuffled(sample_turns(np.random.default_rng(0), simultaneous=True), np.random.default_rng(1))
    twice = parse("opponent(opponent(reward))").evaluate(turns)
    np.testing.assert_array_equal(twice, turns["reward"].to_numpy())


def test_three_players_have_no_opponent() -> None:
    turns = sample_turns(np.random.default_rng(0), agents=("a", "b", "c"), simultaneous=True)
    with pytest.raises(InputError, match=r"opponent: 3 rows share .* with row 0"):
        opponent("reward").evaluate(turns)
    two = Turns({"episode": 0, "turn": [0, 0, 1, 1, 1], "agent": list("ababc"), "reward": [0.0] * 5})
    with pytest.raises(InputError, match=r"opponent: 3 rows share .* with row 2"):
        opponent("reward").evaluate(two)
