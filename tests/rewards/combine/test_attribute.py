"""Attribution: Sotopia-RL's worked rewards in every variant."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.errors import ExpressionError
from palaestra.rewards import attribute, sotopia_reward
from palaestra.testing import check_signal

TALK = Turns(
    {
        "episode": [0] * 4,
        "agent": ["a"] * 4,
        "turn": range(4),
        "weight": [3, 1, 0, -1],
        "progress": [2, 5, 5, 8],
        "score": [8] * 4,
    }
)


def values(signal: Signal, turns: Turns = TALK) -> np.ndarray:
    return np.asarray(signal.evaluate(turns), float)


@pytest.mark.parametrize(
    ("how", "right"),
    [
        ("importance", [8, 2.667, 0, -1]),
        ("normalised", [8, 2.667, 0, -2.667]),
        ("discount", [5.832, 6.48, 7.2, 8]),
        ("key", [8, 0, 0, 0]),
        ("uniform", [8, 8, 8, 8]),
    ],
)
def test_worked_rewards(how: str, right: list[float]) -> None:
    np.testing.assert_allclose(values(attribute("score", "weight", method=how)), right, atol=1e-3)  # type: ignore[arg-type]


def test_progress() -> None:
    np.testing.assert_allclose(values(attribute("score", "progress", method="progress")), [1.6, 2.4, 0, 2.4])
    np.testing.assert_allclose(values(attribute("score", "progress", method="progress", top=5)), [3.2, 4.8, 0, 4.8])


def test_weights_that_sum_to_nothing_and_equal_ones() -> None:
    flat = TALK.with_column(weight=[0, 0, 0, 0])
    assert not values(attribute("score", "weight", method="normalised"), flat).any()
    assert values(attribute("score", "weight", method="key"), flat).tolist() == [8, 0, 0, 0]


def test_a_weight_that_was_not_given_is_missing() -> None:
    some = TALK.with_column(weight=[3, None, 0, -1])
    np.testing.assert_allclose(values(attribute("score", "weight"), some), [8, np.nan, 0, -1])


def test_each_speaker_has_turns_of_its_own() -> None:
    two = TALK.with_column(agent=["a", "b", "a", "b"])
    np.testing.assert_allclose(values(attribute("score", method="discount"), two), [7.2, 7.2, 8, 8])


def test_dimensions_are_brought_to_one_scale() -> None:
    found = values(sotopia_reward(("score", "weight"), ("score", "progress")))
    importance, progress = np.array([8, 8 / 3, 0, -1]), np.array([2, 5, 5, 8]) / 3 * 8
    scaled = [(x - x.min()) / np.ptp(x) for x in (importance, progress)]
    np.testing.assert_allclose(found, 10 * np.mean(scaled, axis=0))


def test_what_is_not_a_way() -> None:
    with pytest.raises(ExpressionError, match="method='importnce'"):
        attribute("score", "weight", method="importnce")  # type: ignore[arg-type]
    with pytest.raises(ExpressionError, match="needs a weight"):
        attribute("score")
    with pytest.raises(ExpressionError, match="is not a dimension"):
        sotopia_reward("score")  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["importance", "normalised", "discount", "progress", "uniform"])
def test_common_tests(how: str) -> None:
    check_signal(attribute("reward", "cost", method=how), complete=False)  # type: ignore[arg-type]
