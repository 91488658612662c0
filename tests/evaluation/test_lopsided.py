"""Clusters of unequal size: one large repository among many small ones."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.evaluation import comparison_table, mean_interval, paired_difference, success_interval, verdict
from palaestra.evaluation.intervals import clustered_variance, effective_number

SIZES = np.array([46] + [5] * 10 + [4])
GROUPS = np.repeat(np.arange(12), SIZES)


def trials(values: np.ndarray, system: str = "a") -> pl.DataFrame:
    made = {"system": system, "run": "0", "task": [f"t{i:03}" for i in range(len(values))], "trial": 0}
    return pl.DataFrame(made | {"cluster": [f"repo {g}" for g in GROUPS[: len(values)]]}).with_columns(
        success=pl.Series(values if values.dtype == bool else values > 0.5),
        score=pl.Series(values.astype(float)),
        error=pl.lit(None, pl.String), turns=1, tokens_in=1, tokens_out=1, cost=1.0,
    )  # fmt: skip


def test_variance_is_unbiased_when_one_cluster_is_large() -> None:
    rng = np.random.default_rng(0)
    found = np.array([clustered_variance(rng.normal(size=12)[GROUPS][None], GROUPS) for _ in range(4000)])
    assert found[:, 0].mean() == pytest.approx((SIZES**2).sum() / 100**2, rel=0.06)
    assert found[0, 1] == pytest.approx(effective_number(SIZES) - 1)
    assert effective_number(SIZES) == pytest.approx(100**2 / (46**2 + 10 * 25 + 16))


def test_equal_clusters_have_the_usual_variance() -> None:
    values, groups = np.random.default_rng(1).normal(size=(1, 40)), np.repeat(np.arange(8), 5)
    variance, freedom = clustered_variance(values, groups)
    assert variance == pytest.approx(values.reshape(8, 5).mean(1).var(ddof=1) / 8)
    assert freedom == pytest.approx(7)


def test_intervals_hold_with_one_large_cluster() -> None:
    """Success rates of 12 repositories from Beta(2, 1), one of which holds 46 of 100 tasks, two equal systems."""
    rng, draws = np.random.default_rng(2), 400
    success = difference = 0
    for _ in range(draws):
        a, b = (rng.random(100) < rng.beta(2, 1, 12)[GROUPS] for _ in "ab")
        one = success_interval(trials(a))
        success += one.low <= 2 / 3 <= one.high
        both = paired_difference(pl.concat([trials(a, "a"), trials(b, "b")]), "b", "a", resamples=200)
        difference += both.low <= 0 <= both.high
    least = 0.95 - 2.6 * np.sqrt(0.95 * 0.05 / draws)
    assert success / draws > least
    assert difference / draws > least


def test_a_large_cluster_is_said() -> None:
    rng = np.random.default_rng(3)
    a, b = (trials(rng.random(100) < 0.6, name) for name in "ab")
    said = "the largest of 12 clusters holds 46 % of the cells: they count as 4.2 of equal size"
    assert said in success_interval(a).caution
    assert said in mean_interval(a).caution
    assert said in verdict(comparison_table(pl.concat([a, b]), baseline="a")[1])
    assert not success_interval(a.drop("cluster")).caution
    assert success_interval(a.head(50)).caution.startswith("2 clusters:")


def test_nothing_but_success_counts_the_clusters_by_their_size() -> None:
    all_won = success_interval(trials(np.ones(100, bool)))
    assert all_won.high == 1.0
    assert all_won.low == pytest.approx(1 / (1 + 1.959964**2 / effective_number(SIZES)), abs=1e-6)


def test_a_handful_of_tasks_that_ever_succeed_is_said() -> None:
    """Most of what such a rate varies by is in tasks that are not there."""
    won = np.zeros((50, 4), bool)
    won[:3, :2] = True
    frames = [trials(won[:, i]).drop("cluster").with_columns(trial=pl.lit(i)) for i in range(4)]
    some = success_interval(pl.concat(frames))
    assert some.caution.startswith("only 3 of 50 tasks ever succeeded")
    assert not success_interval(frames[0]).caution, "Wilson's interval of single trials needs no such thing"
    failed = pl.concat(frames).with_columns(success=~pl.col("success"))
    assert success_interval(failed).caution.startswith("only 3 of 50 tasks ever failed")
    won[:5, 0] = True
    more = pl.concat([trials(won[:, i]).drop("cluster").with_columns(trial=pl.lit(i)) for i in range(4)])
    assert not success_interval(more).caution
