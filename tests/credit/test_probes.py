"""Potentials: telescoping, and the worked numbers of [77]."""

from __future__ import annotations

import numpy as np
import pytest
from tests.tables import values

from palaestra.algebra.signals import total
from palaestra.algebra.turns import Turns
from palaestra.credit import answer_potential, potential_difference, probe_scores, spae

ACCURACY, CONFIDENCE = [0.1, 0.4, 0.95, 0.97, 0.2], [0.2, 0.5, 0.95, 0.98, 0.8]


def probed() -> Turns:
    n = len(ACCURACY)
    keys = {"group": [0] * n, "episode": [0] * n, "turn": range(n), "agent": ["a"] * n, "reward": [0.0] * n}
    return Turns(keys | {"probe_accuracy": ACCURACY, "probe_confidence": CONFIDENCE})


def test_spae_worked_numbers() -> None:
    turns = probed()
    np.testing.assert_allclose(values(answer_potential(), turns), [-0.12, 0, 0.8787, 0.9309, -0.46], atol=1e-4)
    change = values(potential_difference(answer_potential()), turns)
    np.testing.assert_allclose(change, [0, 0.12, 0.8787, 0.0521, -1.3909], atol=1e-4)
    gain = values(spae(xi=1.0, normalise=False), turns)  # one episode: A is 0, what is left is g
    np.testing.assert_allclose(gain, [-0.0340, 0.0662, 0.8386, 0.0089, -0.8797], atol=1e-4)


def test_spae_shrinks_credit_after_the_answer_was_found() -> None:
    one = probed().frame
    turns = Turns(
        one.with_columns(reward=0.2 * np.ones(5)).vstack(
            one.with_columns(episode=one["episode"] + 1, reward=-0.0 * np.ones(5))
        )
    )
    result = values(spae(normalise=False), turns)[:5]  # returns 1 and 0: A = .5
    np.testing.assert_allclose(result, [0.4830, 0.5331, 0.9193, 0.5044, -0.0979], atol=1e-4)
    whole = values(spae(), turns)
    assert whole.mean() == pytest.approx(0, abs=1e-12)
    assert whole.std(ddof=1) == pytest.approx(1, abs=1e-5)


def test_potential_differences_telescope() -> None:
    rng = np.random.default_rng(0)
    turns = Turns(
        {"episode": [0] * 6 + [1] * 4, "turn": [*range(6), *range(4)], "agent": ["a", "b"] * 5, "value": rng.random(10)}
    )
    for difference, ends in (
        (potential_difference("value"), lambda v: v[-1] - v[0]),
        (potential_difference("value", first=0.25), lambda v: v[-1] - 0.25),
        (potential_difference("value", terminal=0.0), lambda v: -v[0]),
    ):
        sums = values(total(difference, over=("episode", "agent")), turns)
        for episode in (0, 1):
            for agent in ("a", "b"):
                mask = (np.array([0] * 6 + [1] * 4) == episode) & (np.array(["a", "b"] * 5) == agent)
                assert sums[mask][0] == pytest.approx(ends(turns["value"].to_numpy()[mask]))


def test_a_missing_potential_is_not_zero() -> None:
    turns = Turns({"episode": [0] * 3, "agent": ["a"] * 3, "value": [None, 0.5, 0.7]})
    np.testing.assert_allclose(values(potential_difference("value"), turns), [np.nan, np.nan, 0.2])


def test_probe_scores() -> None:
    accuracy, confidence = probe_scores(np.log([[0.5, 0.1], [0.9, 0.5]]), np.array([[0.0, 0.0], [1.0, 3.0]]))
    assert accuracy == pytest.approx(0.5)
    assert confidence == pytest.approx((1 + np.exp(-2)) / 2)
