from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from tests.evaluation.conftest import Maker

from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation import (
    cost_per_success,
    eum,
    frontier,
    hypervolume,
    nondominated,
    pareto,
    scalarise,
    simplex_weights,
)

small = st.integers(1, 4).flatmap(
    lambda d: st.integers(1, 7).flatmap(lambda n: arrays(float, (n, d), elements=st.integers(0, 4).map(float)))
)


@given(small)
def test_nondominated_by_definition(points: np.ndarray) -> None:
    expected = [
        not any((q >= p).all() and ((q > p).any() or j < i) for j, q in enumerate(points)) for i, p in enumerate(points)
    ]
    assert nondominated(points).tolist() == expected


@given(small)
def test_hypervolume_by_inclusion_and_exclusion(points: np.ndarray) -> None:
    reference = np.full(points.shape[1], 1.0)
    volume = 0.0
    for k in range(1, len(points) + 1):
        for some in combinations(points, k):
            volume -= (-1) ** k * np.maximum(np.min(some, axis=0) - reference, 0).prod()
    assert hypervolume(points, reference) == pytest.approx(volume)


def test_equal_systems_are_equal_on_the_frontier() -> None:
    frame = pl.DataFrame({"s": list("abcd"), "cost": [2.0, 1.0, 1.0, None], "score": [0.4, 0.5, 0.5, 0.5]})
    found = frontier(frame)
    assert found.select("s", "frontier", "hull").rows() == [
        ("b", True, True), ("c", True, True), ("a", False, False), ("d", False, False)
    ]  # fmt: skip
    assert frontier(frame.clear()).is_empty()


def test_worked_frontier_and_hull() -> None:
    frame = pl.DataFrame(
        {"s": list("abcdefg"), "cost": [1, 2, 4, 5, 10, 2, None], "score": [0.3, 0.5, 0.55, 0.54, 0.8, 0.45, 0.9]}
    )
    found = frontier(frame)
    assert "".join(found.filter("frontier")["s"]) == "abce"
    assert "".join(found.filter("hull")["s"]) == "abe"
    assert len(found) == 7
    assert "".join(pareto(frame, min=["cost"], max=["score"])["s"]) == "abce"


def test_expected_utility_and_scalarise() -> None:
    rng = np.random.default_rng(0)
    points, weights = rng.random((20, 3)), simplex_weights(3, 50)
    assert np.allclose(weights.sum(1), 1)
    assert eum(points, weights) == pytest.approx(np.mean([max(p @ w for p in points) for w in weights]))
    assert eum(points[nondominated(points)], weights) == pytest.approx(eum(points, weights))
    assert np.allclose(scalarise(points, [0.2, 0.3, 0.5]), points @ [0.2, 0.3, 0.5])
    assert np.allclose(scalarise(points, utility=lambda v: v.min(-1)), points.min(1))
    with pytest.raises(InputError, match="either"):
        scalarise(points)


def test_cost_per_success_counts_failures_and_covers(make_trials: Maker) -> None:
    worked = make_trials({"s": np.array([[True, False], [True, True]]), "never": np.zeros((2, 2), bool)})
    found = {row["system"]: row for row in cost_per_success(worked).to_dicts()}
    assert found["s"]["cost_per_success"] == pytest.approx(2.0 / 3)
    assert (found["s"]["n"], found["s"]["tasks"], found["s"]["unknown"]) == (4, 2, 0)
    assert found["never"]["cost_per_success"] is None
    unknown = pl.when(pl.int_range(pl.len()) == 0).then(math.nan).otherwise("cost")
    row = cost_per_success(worked.with_columns(cost=unknown)).filter(system="s").row(0, named=True)
    assert (row["cost_per_success"], row["n"], row["unknown"]) == (0.75, 3, 1)
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(150):
        p = rng.beta(2, 2, (40, 1))
        frame = make_trials({"s": rng.random((40, 4)) < p})
        cost = (rng.gamma(4, 0.25, (40, 4)) * (2 - p)).ravel()
        row = cost_per_success(frame.with_columns(cost=pl.Series(cost))).to_dicts()[0]
        hits += row["low"] <= 3.0 <= row["high"]
    assert hits / 150 >= 0.89


def test_the_interval_of_a_ratio_is_that_of_its_logarithm(make_trials: Maker) -> None:
    frame = make_trials({"s": np.array([[True], [False], [True], [True]])}).with_columns(cost=pl.Series([1.0, 2, 3, 6]))
    row = cost_per_success(frame).to_dicts()[0]
    s, c, n = np.array([1, 0, 1, 1]), np.array([1.0, 2, 3, 6]), 4
    margin = stats.t.ppf(0.975, n - 1) * math.sqrt(n / (n - 1) * ((c / c.sum() - s / s.sum()) ** 2).sum())
    assert (row["low"], row["high"]) == pytest.approx((4 * math.exp(-margin), 4 * math.exp(margin)))


def test_bad_input_is_named() -> None:
    with pytest.raises(MissingColumnError, match="did you mean 'cost'"):
        pareto(pl.DataFrame({"cost": [1]}), min=["costs"])
    with pytest.raises(InputError, match="2 objectives"):
        hypervolume([[1, 2]], [0, 0, 0])
    with pytest.raises(InputError, match="finite"):
        nondominated([[1, np.nan]])
