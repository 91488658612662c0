from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Mapping

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from palaestra.errors import InputError
from palaestra.evaluation import detectable_difference, difference, paired_difference, runs_needed, sign_flip_pvalue
from palaestra.evaluation.difference import _studentised_pvalue

Maker = Callable[[Mapping[str, np.ndarray]], pl.DataFrame]


def discordant(up: int, down: int, tasks: int) -> tuple[np.ndarray, np.ndarray]:
    before = np.arange(tasks) < down
    after = np.roll(np.arange(tasks) < up, down)
    return before[:, None], after[:, None]


def test_worked_case_of_200_paired_tasks(make_trials: Maker) -> None:
    before, after = discordant(34, 19, 200)
    found = paired_difference(make_trials({"before": before, "after": after}), "after", "before")
    assert found.mean == pytest.approx(0.075)
    assert found.p == pytest.approx(stats.binomtest(19, 53).pvalue)
    assert found.p == pytest.approx(0.0534, abs=1e-4)
    se = found.detectable / float(detectable_difference(1.0, freedom=199))
    assert se == pytest.approx(0.0361, abs=2e-4)
    assert found.low < 0.005 < 0.14 < found.high
    assert (found.n, found.clusters, found.dropped) == (200, 200, 0)


def test_pairing_is_by_task_and_not_by_row(make_trials: Maker) -> None:
    rng = np.random.default_rng(0)
    p = rng.random((80, 1))
    frame = make_trials({"before": rng.random((80, 4)) < p, "after": rng.random((80, 4)) < np.clip(p + 0.1, 0, 1)})
    found = paired_difference(frame, "after", "before")
    shuffled = paired_difference(frame.sample(fraction=1, shuffle=True, seed=1), "after", "before")
    assert found == shuffled
    assert paired_difference(frame, "before", "after").mean == pytest.approx(-found.mean)
    broken = frame.with_columns(
        task=pl.when(pl.col("system") == "after").then(pl.col("task").str.replace("task-", "task-1")).otherwise("task")
    )
    assert paired_difference(broken, "after", "before").dropped > 80


def test_pairs_with_one_side_missing_are_dropped_and_counted(make_trials: Maker) -> None:
    before, after = discordant(5, 0, 20)
    frame = make_trials({"before": before, "after": after})
    holed = frame.with_columns(
        success=pl.when(~((pl.col("task") == "task-0") & (pl.col("system") == "after"))).then("success")
    ).filter((pl.col("task") != "task-1") | (pl.col("system") == "after"))
    found = paired_difference(holed, "after", "before")
    assert (found.dropped, found.clusters) == (2, 18)
    assert found.mean == pytest.approx(3 / 18)
    none = paired_difference(
        frame.filter((pl.col("task") == "task-3") == (pl.col("system") == "after")), "after", "before"
    )
    assert none.n == 0
    assert np.isnan(none.mean)


def test_interval_clears_zero_only_with_evidence(make_trials: Maker) -> None:
    rng = np.random.default_rng(0)
    p = rng.random((100, 1)) * 0.6
    frame = make_trials(
        {"a": rng.random((100, 4)) < p, "b": rng.random((100, 4)) < p + 0.3, "c": rng.random((100, 4)) < p}
    )
    better, same = paired_difference(frame, "b", "a"), paired_difference(frame, "c", "a")
    assert better.low > 0.2
    assert better.p < 1e-6
    assert same.low < 0 < same.high
    assert same.p > 0.05


@pytest.mark.parametrize(("tasks", "m"), [(30, 1), (30, 4), (100, 8)])
def test_interval_covers(make_trials: Maker, tasks: int, m: int) -> None:
    rng = np.random.default_rng(tasks + m)
    hits = 0
    for _ in range(250):
        p = rng.beta(0.5, 0.5, (tasks, 1)) * 0.7
        q = p + 0.3 * (rng.random((tasks, 1)) < 0.5)
        frame = make_trials({"a": rng.random((tasks, m)) < p, "b": rng.random((tasks, m)) < q})
        found = paired_difference(frame, "b", "a", resamples=400)
        hits += found.low <= 0.15 <= found.high
    assert 0.905 <= hits / 250 <= 0.985


def test_runs_are_units_too(make_trials: Maker) -> None:
    rng = np.random.default_rng(2)
    before = rng.normal(size=(5, 60, 1))
    gain = np.array([0.6, -0.4, 0.5, -0.5, 0.1])[:, None, None]
    frame = make_trials({"before": before, "after": before + gain + 0.05 * rng.normal(size=before.shape)})
    found = paired_difference(frame, "after", "before", value="score")
    assert found.runs == 5
    assert found.low < -0.3
    assert found.high > 0.3
    assert found.p > 0.5
    # five runs that each prove it for themselves say more together than one
    steady = make_trials({"before": before, "after": before + 0.3 + 0.5 * rng.normal(size=before.shape)})
    single = paired_difference(steady.filter(pl.col("run") == "0"), "after", "before", value="score")
    joint = paired_difference(steady, "after", "before", value="score")
    assert joint.high - joint.low < 0.8 * (single.high - single.low)
    assert joint.p < 1e-4


def test_tasks_that_differ_by_run_leave_runs_as_the_units(make_trials: Maker) -> None:
    before = np.zeros((4, 50, 1))
    frame = make_trials({"before": before, "after": before + np.array([0.1, 0.2, 0.3, 0.4])[:, None, None]})
    frame = frame.with_columns(task=pl.col("run") + pl.col("task"))
    found = paired_difference(frame, "after", "before", value="score")
    low, high = stats.t.interval(0.95, 3, 0.25, stats.sem([0.1, 0.2, 0.3, 0.4]))
    assert found.high - found.low == pytest.approx(high - low)
    assert found.p == pytest.approx(stats.ttest_1samp([0.1, 0.2, 0.3, 0.4], 0).pvalue)


def test_equal_differences_do_not_claim_certainty(make_trials: Maker) -> None:
    frame = make_trials({"a": np.zeros((30, 1), bool), "b": np.zeros((30, 1), bool), "c": np.ones((30, 1), bool)})
    same, all_of_them = paired_difference(frame, "b", "a"), paired_difference(frame, "c", "a")
    assert (same.mean, same.p) == (0, 1)
    assert same.high == pytest.approx(0.1135, abs=1e-4)
    assert all_of_them.low == pytest.approx(1 - 0.1135, abs=1e-4)
    assert all_of_them.high == 1
    assert all_of_them.p == pytest.approx(2 * 0.5**30)
    third = np.tile([True, False, False], (33, 1))  # equal up to rounding
    found = paired_difference(make_trials({"a": np.zeros((33, 3), bool), "b": third}), "b", "a")
    assert found.high - found.low > 0.2


def test_one_task_pairs_its_trials(make_trials: Maker) -> None:
    rng = np.random.default_rng(0)
    frame = make_trials({"a": rng.random((1, 60)) < 0.2, "b": rng.random((1, 60)) < 0.8})
    found = paired_difference(frame, "b", "a")
    assert found.clusters == 60
    assert found.low > 0.3
    one = paired_difference(make_trials({"a": np.zeros((1, 1)), "b": np.ones((1, 1))}), "b", "a", value="score")
    assert (one.mean, one.p) == (1, 1)
    assert np.isnan(one.low)


@pytest.mark.parametrize(
    "differences",
    [[0.25, 0.5, -0.25, 1.0, 0.75, 0.0, 0.5], [0.3137, 1.7, -0.2511, 0.9, 0.77, 0.1], [1 / 7, 3 / 8, -1 / 56]],
)
def test_sign_flip_enumerates(differences: list[float]) -> None:
    d = np.array(differences)
    patterns = np.array(list(itertools.product([-1, 1], repeat=len(d))))
    exact = (np.abs(patterns @ d) >= abs(d.sum()) - 1e-9).mean()
    assert sign_flip_pvalue(d) == pytest.approx(exact)
    assert sign_flip_pvalue(-d) == pytest.approx(exact)


def test_sign_flip_by_sampling_agrees_with_all_patterns() -> None:
    d = np.random.default_rng(0).normal(0.4, 1, 16)
    patterns = np.array(list(itertools.product([-1.0, 1.0], repeat=16)))
    exact = (np.abs(patterns @ d) >= abs(d.sum()) - 1e-12).mean()
    sampled = sign_flip_pvalue(d, resamples=20_000, rng=np.random.default_rng(1))
    assert 0.001 < exact < 0.9
    assert sampled == pytest.approx(exact, abs=4 * np.sqrt(exact / 20_000))
    assert sign_flip_pvalue(np.array([])) == 1
    assert sign_flip_pvalue(np.random.default_rng(0).normal(3, 1, 100), resamples=999) == pytest.approx(0.001)


def test_as_many_sign_patterns_are_drawn_as_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(difference, "_BLOCK", 14 * 300)
    root = np.sqrt([2.0, 3, 5, 7, 11, 13, 17])
    assert sign_flip_pvalue(np.concatenate([root, -root]), resamples=1000) == 1  # all are at least as far as 0 from 0


def test_an_exact_p_is_given_up_only_where_it_would_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    d = np.repeat([1.0, 2.0, -1.0], [10, 2, 1])  # 15 steps of two sizes: 30
    exact = sign_flip_pvalue(d, resamples=1)
    signs = np.array(list(itertools.product([-1, 1], repeat=13)))
    assert exact == pytest.approx((np.abs(signs @ d) >= d.sum()).mean())
    monkeypatch.setattr(difference, "_MOST_STEPS", 30)
    assert sign_flip_pvalue(d, resamples=1) == exact
    monkeypatch.setattr(difference, "_MOST_STEPS", 29)
    assert sign_flip_pvalue(d, resamples=1) in (0.5, 1.0)


def test_same_seed_same_interval_and_fast(make_trials: Maker) -> None:
    rng = np.random.default_rng(0)
    frame = make_trials({"a": rng.random((1000, 8)) < 0.4, "b": rng.random((1000, 8)) < 0.45})
    start = time.process_time()
    first = paired_difference(frame, "b", "a", resamples=10_000, seed=3)
    assert time.process_time() - start < 1.0
    assert first == paired_difference(frame, "b", "a", resamples=10_000, seed=3)


def test_power_reproduces_the_card() -> None:
    assert [runs_needed(1.5, delta) for delta in (1, 2, 3)] == [36, 9, 4]
    assert runs_needed(1.5, 2, power=0.95) == 15
    assert runs_needed(0.4, 0.1, paired=True) == int(np.ceil(7.849 * 16))
    tasks = 120
    needed = detectable_difference(0.4 / np.sqrt(tasks))
    assert runs_needed(0.4, needed, paired=True) == tasks
    rng = np.random.default_rng(0)
    x = rng.normal(needed, 0.4, (4000, tasks))
    assert (stats.ttest_1samp(x, 0, axis=1).pvalue < 0.05).mean() == pytest.approx(0.8, abs=0.02)
    with pytest.raises(InputError, match="delta"):
        runs_needed(1, 0)


def test_unknown_system_is_named(make_trials: Maker) -> None:
    frame = make_trials({"before": np.ones((3, 1)), "after": np.ones((3, 1))})
    with pytest.raises(InputError, match="'afer' in the trials; did you mean 'after'"):
        paired_difference(frame, "afer", "before")


def test_sign_flip_takes_any_size_of_score() -> None:
    """Scores of 1e-8 are not all 0 steps apart, and 1e12 is not enumerated step by step."""
    d = np.random.default_rng(0).normal(0.3, 1, 14)
    p = sign_flip_pvalue(d, resamples=20_000)
    for scale in (1e-9, 1e-15, 1e9, 1e12):
        assert sign_flip_pvalue(d * scale, resamples=20_000) == pytest.approx(p, abs=0.02)
    whole = np.rint(np.random.default_rng(1).normal(2e5, 1e6, 40))
    start = time.process_time()
    p = sign_flip_pvalue(whole, resamples=20_000)
    assert time.process_time() - start < 2
    assert p == pytest.approx(stats.ttest_1samp(whole, 0).pvalue, abs=0.03)


def test_nothing_that_differs_is_no_power(make_trials: Maker) -> None:
    frame = make_trials({"a": np.zeros((20, 2), bool), "b": np.zeros((20, 2), bool)})
    found = paired_difference(frame, "b", "a")
    assert found.detectable > found.high > 0.1
    assert np.isnan(paired_difference(frame, "b", "a", value="score").detectable)
    same = paired_difference(make_trials(dict.fromkeys("ab", np.full((20, 1), 7.0))), "b", "a", value="score")
    assert same.mean == 0
    assert np.isnan([same.low, same.high, same.detectable]).all(), "how far such scores can differ is not known"


def test_intervals_detectable_and_needed_share_the_level(make_trials: Maker) -> None:
    rng = np.random.default_rng(0)
    frame = make_trials({"a": rng.random((50, 1)), "b": rng.random((50, 1)) + 0.1})
    one, five = (paired_difference(frame, "b", "a", value="score", comparisons=m) for m in (1, 5))
    factor = [stats.t.ppf(1 - alpha / 2, 49) + stats.t.ppf(0.8, 49) for alpha in (0.05, 0.01)]
    assert five.detectable / one.detectable == pytest.approx(factor[1] / factor[0])
    assert five.more_tasks > one.more_tasks
    alone = paired_difference(frame, "b", "a", value="score", level=0.99)
    assert (five.low, five.high, five.p) == (alone.low, alone.high, one.p), "all five hold together"
    assert five.low < one.low < one.high < five.high


def test_equal_gains_do_not_make_an_interval_of_no_width(make_trials: Maker) -> None:
    zero, one = np.zeros((6, 1)), np.ones((6, 1))
    found = paired_difference(make_trials({"a": zero, "b": one}), "b", "a", value="score")
    assert found.mean == 1
    assert found.low == pytest.approx(1 - 0.3903, abs=1e-3)  # Wilson's limit of 0 in 6
    assert found.high == 1
    wide = paired_difference(make_trials({"a": zero, "b": np.full((6, 1), 3.0)}), "b", "a", value="score")
    assert (wide.low, wide.high) == (pytest.approx(3 - 3 * 0.3903, abs=3e-3), pytest.approx(3 + 3 * 0.3903, abs=3e-3))


@pytest.mark.parametrize("tasks", [12, 20, 30, 60])
def test_one_task_without_the_gain_of_all_others_does_not_hide_it(make_trials: Maker, tasks: int) -> None:
    new = np.where(np.arange(tasks) == 0, 0.3, 0.4)[:, None]
    frame = make_trials({"a": np.full((tasks, 1), 0.3), "b": new})
    found = paired_difference(frame, "b", "a", value="score", scale=(0, 1))
    assert 0.07 < found.low < found.high < 0.12
    assert found.p < 0.01


@given(st.lists(st.integers(-6, 6), min_size=20, max_size=50), st.integers(-6, 6), st.integers(0, 2**20))
def test_rounding_breaks_no_tie_of_t_with_a_draw(halves: list[int], t: int, seed: int) -> None:
    draws, rng = np.sort(halves) / 2, np.random.default_rng(seed)
    shaken = np.sort(draws + rng.uniform(-1e-12, 1e-12, len(draws)))
    assert _studentised_pvalue(t / 2, shaken) == _studentised_pvalue(t / 2, draws)


def test_families_are_paired_flipped_and_asked_for(make_trials: Maker) -> None:
    """Tasks that are copies of one another: as many p and as wide as with one of each."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(14, 1)), rng.normal(1.2, 1, (14, 1))
    alone = paired_difference(make_trials({"a": a, "b": b}), "b", "a", value="score")
    copied = make_trials({"a": np.repeat(a, 5, 0), "b": np.repeat(b, 5, 0)})
    blind = paired_difference(copied, "b", "a", value="score")
    kin = copied.with_columns(cluster=pl.col("task").str.extract(r"(\d+)").cast(int) // 5)
    found = paired_difference(kin, "b", "a", value="score")
    assert (found.clusters, found.tasks) == (14, 70)
    assert found.p == pytest.approx(alone.p, rel=0.2)
    assert found.high - found.low == pytest.approx(alone.high - alone.low, rel=0.05)
    assert found.more_tasks == alone.more_tasks
    assert blind.p < 0.2 * found.p
    runs = pl.concat([kin, kin.with_columns(pl.col("score") + 0.1, run=pl.lit("1"))])
    assert paired_difference(runs, "b", "a", value="score").clusters == 14


def test_skewed_gains_are_not_called_certain_by_sign_flips(make_trials: Maker) -> None:
    """Many small losses and few large gains: signs are not symmetric, and p must not be that of the flips alone."""
    values = -np.abs(np.random.default_rng(0).lognormal(0, 1.8, (30, 1)))
    shifted = values - values.mean() - 0.9
    found = paired_difference(make_trials({"a": np.zeros((30, 1)), "b": shifted}), "b", "a", value="score")
    assert found.p >= sign_flip_pvalue(shifted[:, 0], rng=np.random.default_rng(0)) * 0.9
    assert "heavy tails" in found.caution


@pytest.mark.parametrize(("rates", "gain"), [((0.02, 0.02), 0.0), ((0.02, 0.05), 0.03)])
def test_interval_covers_where_success_is_rare(make_trials: Maker, rates: tuple[float, float], gain: float) -> None:
    """100 tasks × 1 trial of 2 %: some data sets have a handful of successes, all on one side."""
    rng, draws = np.random.default_rng(7), 800
    held = 0
    for _ in range(draws):
        a, b = (rng.random((100, 1)) < rate for rate in rates)
        found = paired_difference(make_trials({"a": a, "b": b}), "b", "a", resamples=200)
        held += found.low <= gain <= found.high
    assert held / draws > 0.95 - 1.65 * np.sqrt(0.95 * 0.05 / draws)


def test_one_pair_has_no_deviation_and_warns_of_nothing(make_trials: Maker) -> None:
    frame = make_trials({"a": np.zeros((1, 1)), "b": np.ones((1, 1))})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(paired_difference(frame, "b", "a", value="score").sd)
