from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from palaestra.errors import InputError
from palaestra.evaluation.ranking import failure_sensitivity, swiss


def test_worked_expectations() -> None:
    scores = np.array([[4, 1], [3, 4], [2, 3], [1, 2]])
    assert swiss(scores, exact=True)["expected"].to_list() == pytest.approx([1, 5 / 3, 4 / 3, 0])


@settings(max_examples=12, deadline=None)
@given(
    st.integers(2, 5).flatmap(lambda m: arrays(float, (m, 3), elements=st.integers(0, 3).map(float))), st.integers(0, 2)
)
def test_simulation_agrees_with_enumeration(scores: np.ndarray, eliminate: int) -> None:
    exact = swiss(scores, eliminate=eliminate, exact=True)["expected"].to_numpy()
    drawn = swiss(scores, eliminate=eliminate, simulations=4000)
    error = (drawn["high"] - drawn["expected"]).to_numpy() / 1.96
    assert (np.abs(drawn["expected"].to_numpy() - exact) <= 5 * error + 1e-9).all()


def test_a_point_for_every_match() -> None:
    scores = np.random.default_rng(0).random((7, 4))
    assert swiss(scores, simulations=500)["expected"].sum() == pytest.approx(3 * 4)
    out = swiss(scores, eliminate=(2, 2, 1, 0), simulations=500)["expected"].sum()
    assert out == pytest.approx(3 + 2 + 1 + 1)


def test_elimination_hurts_the_specialist_more() -> None:
    rng = np.random.default_rng(1)
    scores = np.vstack([np.full(6, 0.72), [0.05, 0.95, 0.95, 0.05, 0.95, 0.95], rng.uniform(0.4, 1.0, (6, 6))])
    found = failure_sensitivity(scores, eliminate=range(3), simulations=3000)
    assert found["slope"][1] < found["slope"][0] < 0


def test_the_interval_is_of_the_mean_and_none_of_an_enumeration() -> None:
    """Equal scores toss a coin: the mean of 400 has a standard error of .5 / 20."""
    drawn = swiss(np.zeros((2, 1)), simulations=400).row(0, named=True)
    assert drawn["high"] - drawn["expected"] == pytest.approx(1.96 * 0.025, rel=0.02)
    assert drawn["expected"] - drawn["low"] == pytest.approx(1.96 * 0.025, rel=0.02)
    exact = swiss(np.zeros((2, 1)), exact=True)
    assert exact["low"].equals(exact["high"])


def test_the_slope_is_over_the_numbers_that_drop_out() -> None:
    scores = np.random.default_rng(2).random((6, 4))
    found = failure_sensitivity(scores, eliminate=(0, 1, 4), simulations=300, seed=5)
    points = np.array([swiss(scores, eliminate=t, simulations=300, seed=5)["expected"].to_numpy() for t in (0, 1, 4)])
    t = np.array([0, 1, 4]) - 5 / 3
    assert found["slope"].to_numpy() == pytest.approx(t @ points / (t @ t))


def test_bad_input_is_named() -> None:
    with pytest.raises(InputError, match="at most 6"):
        swiss(np.zeros((7, 1)), exact=True)
    with pytest.raises(InputError, match="3 rounds"):
        swiss(np.zeros((2, 3)), eliminate=[1])
    with pytest.raises(InputError, match="finite"):
        swiss(np.full((2, 3), np.nan))


def test_the_mean_rank_beside_it_is_1_for_the_best() -> None:
    found = swiss(np.array([[3.0, 3], [2, 1], [1, 2]]), simulations=10)
    assert found["mean_rank"].to_list() == [1, 2.5, 2.5]
    assert found["borda"].arg_max() == 0
