from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from math import comb
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation import Estimate, k_estimate, mean_interval, pass_at_k, pass_hat_k, success_interval
from palaestra.evaluation.intervals import cells, clopper_pearson, clustered_variance, studentised, wilson

Maker = Callable[[Mapping[str, np.ndarray]], pl.DataFrame]


def outcomes(successes: int, tasks: int) -> np.ndarray:
    return (np.arange(tasks) < successes)[:, None]


@pytest.mark.parametrize(("c", "n", "low", "high"), [(0, 30, 0.0, 0.1135), (1, 15, 0.0119, 0.2982)])
def test_wilson_with_one_trial_per_task(make_trials: Maker, c: int, n: int, low: float, high: float) -> None:
    found = success_interval(make_trials({"a": outcomes(c, n)}))
    assert found.low == pytest.approx(low, abs=1e-4)
    assert found.high == pytest.approx(high, abs=1e-4)
    assert (found.n, found.clusters, found.runs) == (n, n, 1)


@pytest.mark.parametrize("n", range(1, 60))
def test_of_none_it_begins_at_0_and_of_all_it_ends_at_1(make_trials: Maker, n: int) -> None:
    none, every = (success_interval(make_trials({"a": outcomes(c, n)})) for c in (0, n))
    assert (none.low, every.high) == (0.0, 1.0), "not 2.78e-17"
    low, high = wilson([0, n], n)
    assert (low[0], high[1]) == (0.0, 1.0)


def test_repeating_the_same_outcomes_adds_no_information(make_trials: Maker) -> None:
    once = success_interval(make_trials({"a": outcomes(20, 50)}))
    eight = success_interval(make_trials({"a": np.repeat(outcomes(20, 50), 8, axis=1)}))
    assert eight.n == 400
    assert eight.high - eight.low == pytest.approx(once.high - once.low, rel=0.06)
    for c in (0, 50):
        ends = [success_interval(make_trials({"a": np.repeat(outcomes(c, 50), m, axis=1)})) for m in (1, 8)]
        assert ends[0].low == pytest.approx(ends[1].low)
        assert ends[0].high == pytest.approx(ends[1].high)


@pytest.mark.parametrize(
    ("values", "variance", "freedom"),
    [
        (np.add.outer(np.arange(5.0), np.arange(5.0)), 10 / 12, 4),  # Satterthwaite's 5.56 is more than either axis has
        (np.array([[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0]]), 0.0, 1),  # no mean differs
    ],
)
def test_crossed_variance_by_hand(values: np.ndarray, variance: float, freedom: float) -> None:
    assert clustered_variance(values) == pytest.approx((variance, freedom))


def test_draws_are_the_same_in_any_unit() -> None:
    values = np.random.default_rng(0).exponential(size=(1, 12))
    found = [studentised(values * unit, resamples=50, seed=0) for unit in (1.0, 2.0**-40, 2.0**40)]
    assert len(found[0]) == 50
    for each in found[1:]:
        assert each == pytest.approx(found[0])


def test_what_is_too_large_for_its_square_is_named(make_trials: Maker) -> None:
    frame = make_trials({"a": np.array([[1e150]])})
    assert cells(frame, "score")["mean"].to_list() == [1e150]
    with pytest.raises(InputError, match="too large to average"):
        cells(make_trials({"a": np.array([[-1.1e150]])}), "score")


def test_independent_trials_narrow_the_interval(make_trials: Maker) -> None:
    x = np.random.default_rng(0).random((100, 8)) < 0.4
    wide = success_interval(make_trials({"a": x[:, :1]}))
    narrow = success_interval(make_trials({"a": x}))
    assert narrow.high - narrow.low < 0.45 * (wide.high - wide.low)


def test_one_task_is_judged_by_its_trials(make_trials: Maker) -> None:
    x = np.arange(30)[None] < 0
    found = success_interval(make_trials({"a": x}))
    assert found.clusters == 30
    assert found.high == pytest.approx(0.1135, abs=1e-4)
    scores = mean_interval(make_trials({"a": np.array([[1.0, 2.0, 3.0]])}))
    assert scores.high - scores.mean == pytest.approx(stats.t.ppf(0.975, 2) * 1 / math.sqrt(3))


def test_runs_that_differ_widen_the_interval(make_trials: Maker) -> None:
    x = np.zeros((4, 50, 1), bool)
    x[:2] = True
    found = success_interval(make_trials({"a": x}))
    assert found.runs == 4
    assert found.low < 0.15
    assert found.high > 0.85


def test_mean_interval_matches_t_and_skips_missing_values(make_trials: Maker) -> None:
    values = np.random.default_rng(1).normal(2, 1, (20, 1))
    frame = make_trials({"a": values})
    found = mean_interval(frame)
    low, high = stats.t.interval(0.95, 19, values.mean(), stats.sem(values[:, 0]))
    width = high - low  # either end is t's, or a little farther out
    assert low - 0.15 * width < found.low <= low + 1e-12
    assert high - 1e-12 <= found.high < high + 0.15 * width
    few = mean_interval(make_trials({"a": values[:7]}))
    low, high = stats.t.interval(0.95, 6, values[:7].mean(), stats.sem(values[:7, 0]))
    assert (few.low, few.high) == (pytest.approx(low), pytest.approx(high))
    assert "7 tasks" in few.caution
    holed = frame.with_columns(score=pl.when(pl.col("task") != "task-3").then("score"))
    assert mean_interval(holed).mean == pytest.approx(np.delete(values, 3).mean())
    assert mean_interval(holed).n == 19


def test_unequal_trials_count_tasks_equally(make_trials: Maker) -> None:
    frame = pl.concat([make_trials({"a": np.array([[0.0], [0.0]])}), make_trials({"a": np.full((2, 9), 1.0)})])
    frame = frame.filter((pl.col("task") == "task-0") | (pl.col("score") == 0))
    assert mean_interval(frame).mean == pytest.approx((0.9 + 0.0) / 2)


def test_clustered_variance_by_hand() -> None:
    values = np.array([[1.0, 2.0, 6.0]])
    assert clustered_variance(values) == (pytest.approx(values.var(ddof=1) / 3), 2)
    nested = np.array([[1.0, 2.0, np.nan, np.nan], [np.nan, np.nan, 5.0, 6.0]])
    assert clustered_variance(nested) == (pytest.approx(np.var([1.5, 5.5], ddof=1) / 2), 1)
    alike = np.array([[1.0, 5.0, np.nan, np.nan], [np.nan, np.nan, 0.0, 7.0]])  # tasks vary more than runs
    assert clustered_variance(alike) == (pytest.approx(np.var([3.0, 3.5], ddof=1) / 2), 1)


def test_clustered_variance_is_unbiased_for_crossed_runs_and_tasks() -> None:
    rng = np.random.default_rng(0)
    truth = 0.1**2 / 40 + 0.1**2 / 50 + 1 / 2000
    draws = [
        clustered_variance(0.1 * rng.normal(size=(40, 1)) + 0.1 * rng.normal(size=50) + rng.normal(size=(40, 50)))
        for _ in range(300)
    ]
    assert np.mean([v for v, _ in draws]) == pytest.approx(truth, rel=0.08)
    assert all(39 <= freedom <= 49 for _, freedom in draws)
    assert math.isnan(clustered_variance(np.array([[1.0]]))[0])


@given(st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, 45))))
def test_pass_at_k_is_exact(nck: tuple[int, int, int]) -> None:
    n, c, k = nck
    at, hat = float(pass_at_k(n, c, k)), float(pass_hat_k(n, c, k))
    if n < k:
        assert math.isnan(at)
        assert math.isnan(hat)
    else:
        assert at == pytest.approx(float(1 - Fraction(comb(n - c, k), comb(n, k))), abs=1e-12)
        assert hat == pytest.approx(float(Fraction(comb(c, k), comb(n, k))), abs=1e-12)


def test_pass_at_k_broadcasts_and_is_unbiased() -> None:
    assert pass_at_k([10, 10], [7, 0], [[1], [5]]).shape == (2, 2)
    assert pass_hat_k(2000, 1999, 1000) == pytest.approx(0.5)
    rng = np.random.default_rng(0)
    p = rng.random(40_000)
    c = rng.binomial(8, p)
    assert pass_at_k(8, c, 4).mean() == pytest.approx((1 - (1 - p) ** 4).mean(), abs=0.004)
    assert pass_hat_k(8, c, 4).mean() == pytest.approx((p**4).mean(), abs=0.004)
    with pytest.raises(InputError):
        pass_at_k(3, 4, 1)
    with pytest.raises(InputError):
        pass_hat_k(3, 2, 0)


@pytest.mark.parametrize(("tasks", "m"), [(30, 1), (30, 8), (100, 4)])
def test_success_interval_covers(make_trials: Maker, tasks: int, m: int) -> None:
    rng = np.random.default_rng(tasks + m)
    hits = 0
    for _ in range(250):
        p = rng.beta(0.5, 0.8, (tasks, 1))
        found = success_interval(make_trials({"a": rng.random((tasks, m)) < p}))
        hits += found.low <= 0.5 / 1.3 <= found.high
    assert 0.905 <= hits / 250 <= 0.99


def test_estimates_are_json_and_bad_columns_are_named(make_trials: Maker) -> None:
    frame = make_trials({"a": np.array([[1.0]])})
    found = mean_interval(frame).to_dict()
    assert found["mean"] == 1.0
    assert found["low"] is None
    json.dumps(found, allow_nan=False)
    with pytest.raises(MissingColumnError, match=r"'scor'; did you mean 'score'"):
        mean_interval(frame, value="scor")
    empty = success_interval(frame.with_columns(success=pl.lit(None, pl.Boolean)))
    assert empty.n == 0
    assert math.isnan(empty.mean)


def test_families_are_the_units_and_singletons_change_nothing(make_trials: Maker) -> None:
    """Copies of one task add no information: a family of four equal tasks is one task."""
    rng = np.random.default_rng(5)
    base = rng.random((12, 3)) < rng.beta(0.2, 0.2, (12, 1))
    alone = make_trials({"a": base})
    copied = make_trials({"a": np.repeat(base, 4, axis=0)})
    kin = copied.with_columns(cluster=pl.col("task").str.extract(r"(\d+)").cast(int) // 4)
    one, four = success_interval(alone), success_interval(kin)
    assert (four.clusters, four.mean) == (12, pytest.approx(one.mean))
    assert four.high - four.low == pytest.approx(one.high - one.low, rel=0.02)
    assert success_interval(copied).high - success_interval(copied).low < 0.6 * (four.high - four.low)
    assert "by cluster" in four.method
    values = np.random.default_rng(6).exponential(size=(15, 2))
    frame = make_trials({"a": values})
    plain, single = mean_interval(frame), mean_interval(frame.with_columns(cluster="task"))
    assert (single.low, single.high) == (pytest.approx(plain.low), pytest.approx(plain.high))
    assert k_estimate(kin, "pass_hat_k", 2).clusters == 12


def test_unequal_families_by_hand() -> None:
    """V = G/(G-1) · Σ_g (Σ deviations of g)² / N²."""
    values, groups = np.array([[1.0, 2.0, 3.0, 10.0]]), np.array([0, 0, 1, 1])
    deviations = np.array([1 + 2 - 8.0, 3 + 10 - 8.0])
    assert clustered_variance(values, groups) == (pytest.approx(2 * (deviations**2).sum() / 16), 1)


def test_a_score_of_zeros_and_ones_is_a_share(make_trials: Maker) -> None:
    frame = make_trials({"a": np.array([[0.0], [1.0]])})
    found = mean_interval(frame)
    assert 0 <= found.low < 0.5 < found.high <= 1
    assert (found.low, found.high) == tuple(map(pytest.approx, _ends(success_interval(frame, value="score"))))


def _ends(found: Estimate) -> tuple[float, float]:
    return found.low, found.high


def test_what_does_not_vary_has_no_interval(make_trials: Maker) -> None:
    found = mean_interval(make_trials({"a": np.full((6, 1), 0.1 + 0.2)}))
    assert found.mean == pytest.approx(0.3)
    assert math.isnan(found.low)
    assert math.isnan(found.high)


def test_skewed_scores_reach_out_to_the_long_side_and_say_so(make_trials: Maker) -> None:
    values = np.random.default_rng(2).lognormal(0, 1.5, (30, 1))
    found = mean_interval(make_trials({"a": values}))
    assert found.high - found.mean > 1.3 * (found.mean - found.low)
    assert found.caution.startswith("heavy tails: one of 30 tasks makes ")
    assert not mean_interval(make_trials({"a": np.random.default_rng(2).normal(size=(30, 1))})).caution


def test_studentised_draws_by_hand() -> None:
    """Quantiles of t* from whole loops over draws, with the clustered standard error of each."""
    rng = np.random.default_rng(0)
    values, groups = rng.exponential(size=(1, 24)), np.arange(24) // 2
    parts = values[0].reshape(12, 2)
    t = []
    for _ in range(4000):
        x = parts[rng.integers(0, 12, 12)].sum(1)
        error = math.sqrt(12 / 11 * ((x - x.mean()) ** 2).sum()) / 24
        t.append((x.sum() / 24 - values.mean()) / error)
    ours = studentised(values, groups, resamples=4000, seed=1)
    for q in (0.05, 0.5, 0.95):
        assert np.quantile(ours, q) == pytest.approx(np.quantile(t, q), abs=0.15)
    assert not len(studentised(values[:, :7], seed=1))


@given(st.integers(1, 4), st.integers(9, 60), st.floats(-3, 3), st.floats(0.01, 5))
def test_draws_of_one_value_alone_leave_whatever_it_is(odd: int, tasks: int, low: float, step: float) -> None:
    """Between two values t depends on their counts only; 2.9 alone has no variance, as 1 alone has none."""
    high = (np.arange(tasks) >= odd)[None]
    plain = studentised(high * 1.0, resamples=100, seed=0)
    assert studentised(low + step * high, resamples=100, seed=0) == pytest.approx(plain, abs=1e-6)
    assert np.abs(plain).max() < tasks


def test_draws_of_rounding_leave() -> None:
    values = np.array([[0.1 + 0.2 - 0.3, 0.0] * 10 + [0.5]])
    assert np.abs(studentised(values, seed=0)).max() < 21


def test_values_too_large_to_square_are_named(make_trials: Maker) -> None:
    with pytest.raises(InputError, match=r"score: 1e\+308 is too large"):
        mean_interval(make_trials({"a": np.array([[1e308], [-1e308]])}))


@pytest.mark.parametrize(("ours", "method"), [(wilson, "wilson"), (clopper_pearson, "beta")])
def test_intervals_of_shares_are_those_of_statsmodels(ours: Any, method: str) -> None:
    theirs = pytest.importorskip("statsmodels.stats.proportion").proportion_confint
    for level in (0.5, 0.9, 0.95, 0.999):
        for n in (1, 2, 7, 30, 1000):
            hits = np.arange(n + 1)[:: max(1, n // 20)]
            low, high = ours(hits, n, level=level)
            expected = np.array([theirs(int(each), n, alpha=1 - level, method=method) for each in hits]).T
            assert np.array([low, high]) == pytest.approx(expected, abs=1e-12)
