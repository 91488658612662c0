from __future__ import annotations

from itertools import combinations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import comb

from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation import k_estimate, per_task, run_spread


def trials(values: np.ndarray, **columns: np.ndarray) -> pl.DataFrame:
    task, trial = (axis.ravel() for axis in np.indices(values.shape))
    base = {"system": "s", "run": "0", "task": [f"t{t}" for t in task], "trial": trial}
    filled = {"success": values.ravel() > 0.5, "score": values.ravel().astype(float)}
    return pl.DataFrame(base | filled | {name: x.ravel() for name, x in columns.items()})


@given(arrays(float, (3, 6), elements=st.integers(0, 4).map(float)), st.integers(1, 6))
def test_best_of_is_the_mean_over_all_subsets(values: np.ndarray, k: int) -> None:
    found = per_task(trials(values), "best_of", k)["value"].to_numpy()
    brute = [np.mean([max(row[list(some)]) for some in combinations(range(6), k)]) for row in values]
    assert np.allclose(found, brute)


def test_best_of_by_another_column_gives_what_the_choice_yields() -> None:
    rng = np.random.default_rng(0)
    score, dev = rng.random((4, 5)), rng.random((4, 5))
    found = per_task(trials(score, dev=dev), "best_of", 3, select="dev")["value"].to_numpy()
    brute = [
        np.mean([row[max(some, key=lambda i: guide[i])] for some in combinations(range(5), 3)])
        for row, guide in zip(score, dev, strict=True)
    ]
    assert np.allclose(found, brute)
    even = per_task(trials(score, dev=np.zeros((4, 5))), "best_of", 3, select="dev")["value"].to_numpy()
    assert np.allclose(even, score.mean(1))


def test_a_trial_without_a_score_to_choose_by_is_not_the_best() -> None:
    frame = trials(np.array([[1, 0, 0.0]]), dev=np.array([[0.9, 0.1, np.nan]]))
    for each in (frame, frame.with_columns(pl.col("dev").fill_nan(None))):
        assert per_task(each, "best_of", 2, select="dev").rows() == [("0", "t0", 2, 1.0, 1.0)]


def test_maximum_of_eight_manufactures_progress() -> None:
    rng = np.random.default_rng(1)
    frame = trials(rng.normal(0, 0.03, (200, 8)), dev=rng.normal(size=(200, 8)))
    assert k_estimate(frame, "best_of", 8).mean == pytest.approx(0.03 * 1.4236, rel=0.05)
    honest = k_estimate(frame, "best_of", 8, select="dev")
    assert honest.low < 0 < honest.high


def test_leaderboard_counts_missing_trials_as_failures() -> None:
    frame = trials(np.ones((2, 3))).filter(~((pl.col("task") == "t1") & (pl.col("trial") == 2)))
    assert per_task(frame, "all_k", 3)["value"].to_list() == [1.0, 0.0]
    assert per_task(frame, "all_k", 3, missing=None)["value"].to_list() == [1.0, None]
    two_of_three = trials(np.array([[1, 1, 0]]))
    assert per_task(two_of_three, "all_k", 3)["value"].item() == 0.0
    assert per_task(two_of_three, "pass_hat_k", 3)["value"].item() == 0.0
    assert per_task(frame, "pass_hat_k", 3)["value"].to_list() == [1.0, None]


def test_unbiased_forms_against_binomials() -> None:
    values = np.array([[1] * 7 + [0] * 3])
    for k in (1, 2, 5):
        assert per_task(trials(values), "pass_at_k", k)["value"].item() == pytest.approx(1 - comb(3, k) / comb(10, k))
        assert per_task(trials(values), "pass_hat_k", k)["value"].item() == pytest.approx(comb(7, k) / comb(10, k))


def test_bad_input_is_named() -> None:
    frame = trials(np.ones((1, 2)))
    with pytest.raises(InputError, match="k=0"):
        per_task(frame, "pass_at_k", 0)
    with pytest.raises(InputError, match="pass_at_k"):
        per_task(frame, "pass_at", 1)  # type: ignore[arg-type]
    with pytest.raises(MissingColumnError, match="did you mean 'score'"):
        per_task(frame, "best_of", 1, select="scor")


def test_run_spread_is_what_task_rates_predict() -> None:
    rng = np.random.default_rng(2)
    p = rng.beta(0.5, 0.5, (400, 1))
    spread = run_spread(trials((rng.random((400, 60)) < p).astype(float)))
    truth = float(np.sqrt((p * (1 - p)).sum()) / 400)
    assert spread.predicted == pytest.approx(truth, rel=0.03)
    assert spread.sd == pytest.approx(truth, rel=0.25)
    assert spread.low < truth < spread.high
    assert (spread.runs, spread.tasks) == (60, 400)
    one = run_spread(trials(np.ones((3, 1))))
    assert one.runs == 1
    assert np.isnan(one.sd)
    assert np.isnan(one.predicted)


def test_pass_hat_interval_covers() -> None:
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(150):
        found = k_estimate(trials((rng.random((60, 5)) < rng.beta(4, 1, (60, 1))).astype(float)), "pass_hat_k", 3)
        hits += found.low <= 4 / 7 <= found.high
    assert 0.91 <= hits / 150 <= 0.99


def test_an_estimate_counts_the_trials_that_it_uses() -> None:
    frame = pl.DataFrame({"run": "0", "task": ["a", "a", "b"], "trial": [0, 1, 0], "success": [True, False, True]})
    found = k_estimate(frame, "pass_at_k", 2)
    assert (found.n, found.clusters, found.mean) == (2, 1, 1.0)


def test_all_of_the_first_trials_in_their_order() -> None:
    """Trials 0 and 1 succeed, trial 2 does not; the rows stand the other way round."""
    rows = {"run": "0", "task": "a", "trial": [2, 1, 0], "success": [False, True, True]}
    assert per_task(pl.DataFrame(rows), "all_k", 2)["value"].to_list() == [1.0]
    assert per_task(pl.DataFrame(rows), "all_k", 4, missing=True)["value"].to_list() == [0.0], "one has failed"
    unknown = pl.DataFrame(rows | {"success": [None, True, True]})
    assert per_task(unknown, "all_k", 3)["value"].to_list() == [0.0]
    assert per_task(unknown, "all_k", 3, missing=None)["value"].to_list() == [None]
