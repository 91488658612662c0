"""Against rliable; its bootstrap draws other numbers, so intervals agree within Monte Carlo error."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm, trim_mean
from tests.evaluation.conftest import Maker

from palaestra.errors import InputError
from palaestra.evaluation import (
    bootstrap_interval,
    improvement_interval,
    interquartile_mean,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    score_matrix,
)

RNG = np.random.default_rng(0)
A, B = RNG.gamma(2, 0.4, (10, 13)), RNG.gamma(2, 0.3, (7, 13))


def rliable_library(monkeypatch: pytest.MonkeyPatch) -> Any:
    """rliable uses arch.bootstrap alone; the rest of arch 7 cannot be imported beside pandas 3."""
    found = importlib.util.find_spec("arch")
    if found is None or importlib.util.find_spec("rliable") is None:
        pytest.skip("rliable is not installed")
    bare = types.ModuleType("arch")
    bare.__path__ = list(found.submodule_search_locations or [])
    monkeypatch.setitem(sys.modules, "arch", bare)
    return importlib.import_module("rliable.library")


def test_points_are_rliables() -> None:
    metrics = pytest.importorskip("rliable.metrics")
    assert interquartile_mean(A) == pytest.approx(metrics.aggregate_iqm(A), abs=1e-12)
    assert optimality_gap(A, target=0.7) == pytest.approx(metrics.aggregate_optimality_gap(A, gamma=0.7), abs=1e-12)
    assert probability_of_improvement(A, B) == pytest.approx(metrics.probability_of_improvement(A, B), abs=1e-12)
    tied_a, tied_b = A.round(1), B.round(1)
    theirs = metrics.probability_of_improvement(tied_a, tied_b)
    assert probability_of_improvement(tied_a, tied_b) == pytest.approx(theirs, abs=1e-12)


def test_intervals_are_rliables_within_monte_carlo_error(monkeypatch: pytest.MonkeyPatch) -> None:
    library = rliable_library(monkeypatch)
    from rliable import metrics

    theirs = library.get_interval_estimates({"a": A}, lambda x: np.array([metrics.aggregate_iqm(x)]), reps=1500)[1]["a"]
    ours = bootstrap_interval(A, corrected=False, resamples=10_000)
    assert [ours.low, ours.high] == pytest.approx(theirs[:, 0].tolist(), abs=0.012)
    both = library.get_interval_estimates(
        {"a": A}, lambda x: np.array([metrics.aggregate_iqm(x)]), task_bootstrap=True, reps=1500
    )[1]["a"]
    ours = bootstrap_interval(A, over="runs and tasks", corrected=False, resamples=10_000)
    assert [ours.low, ours.high] == pytest.approx(both[:, 0].tolist(), abs=0.03)
    taus = np.array([0.2, 0.5, 1.0])
    points, around = library.create_performance_profile({"a": A}, taus, reps=1000)
    profile = performance_profile(A, taus)
    assert profile["share"].to_list() == pytest.approx(points["a"].tolist(), abs=1e-12)
    stretched = points["a"] + np.sqrt(10 / 9) * (around["a"] - points["a"])
    assert profile["low"].to_list() == pytest.approx(stretched[0].clip(0, 1).tolist(), abs=0.02)


@pytest.mark.parametrize("size", [4, 5, 7, 8, 50])
def test_interquartile_mean_is_the_trimmed_mean_and_takes_batches(size: int) -> None:
    x = RNG.normal(size=(3, 1, size))
    assert np.allclose(interquartile_mean(x), [trim_mean(row.ravel(), 0.25) for row in x])


def test_corrected_interval_covers_with_five_runs() -> None:
    rng = np.random.default_rng(1)
    mu = rng.normal(size=(1, 15))
    truth = float(interquartile_mean(mu + rng.normal(size=(40_000, 15))))
    hits = np.zeros(3)
    for _ in range(150):
        x = mu + rng.normal(size=(5, 15))
        found = [bootstrap_interval(x, corrected=c, resamples=400) for c in (True, False)]
        better = improvement_interval(x + 0.3, mu + rng.normal(size=(5, 15)), resamples=200)
        held = [e.low <= truth <= e.high for e in found]
        hits += [*held, better.low <= norm.cdf(0.3 / np.sqrt(2)) <= better.high]
    assert hits[0] / 150 >= 0.9
    assert hits[1] < hits[0]
    assert hits[2] / 150 >= 0.92


def test_a_single_run_says_nothing_of_other_runs() -> None:
    for found in (bootstrap_interval(A[:1], resamples=20), improvement_interval(A[:1], B, resamples=20)):
        assert np.isnan([found.low, found.high]).all()
    profile = performance_profile(A[:1], np.array([0.5]), resamples=20)
    assert np.isnan(profile.select("low", "high").to_numpy()).all()
    as_rliable = bootstrap_interval(A[:1], corrected=False, resamples=20)
    assert as_rliable.low == as_rliable.mean


def test_score_matrix_and_complaints(make_trials: Maker) -> None:
    x = RNG.random((6, 4))
    assert np.allclose(score_matrix(make_trials({"s": x})), x.T)
    assert np.allclose(score_matrix(make_trials({"s": RNG.random((2, 6, 4))})).shape, (2, 6))
    with pytest.raises(InputError, match="1 of 24 cells"):
        score_matrix(make_trials({"s": x}).slice(1))
    with pytest.raises(InputError, match="13 tasks against 12"):
        improvement_interval(A, B[:, 1:])
