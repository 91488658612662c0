from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy.stats import chi2_contingency
from statsmodels.sandbox.stats.runs import runstest_1samp
from statsmodels.stats.proportion import proportion_confint

from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation import divergences, first_divergence, sequence_tests
from palaestra.evaluation.intervals import wilson
from palaestra.evaluation.sequences import share_differences


def frame(x: np.ndarray) -> pl.DataFrame:
    system, turn = (axis.ravel() for axis in np.indices(x.shape))
    return pl.DataFrame({"system": system, "episode": 0, "turn": turn, "action": x.ravel().astype(int)})


def test_one_series_against_statsmodels_and_scipy() -> None:
    x = (np.random.default_rng(0).random(300) < 0.4).astype(int)
    row = sequence_tests(frame(x[None])).to_dicts()[0]
    z, p = runstest_1samp(x, cutoff=0.5, correction=False)
    assert (row["runs_z"], row["runs_p"]) == pytest.approx((z, p), abs=1e-9)
    table = np.array([[np.sum((x[:-1] == a) & (x[1:] == b)) for b in (0, 1)] for a in (0, 1)])
    test = chi2_contingency(table, correction=False)
    assert (row["markov_chi2"], row["markov_p"]) == pytest.approx((test.statistic, test.pvalue))
    assert (row["low"], row["high"]) == pytest.approx(proportion_confint(x.sum(), 300, method="beta"))
    assert row["alternation"] == pytest.approx(np.mean(x[1:] != x[:-1]))
    runs = "".join(map(str, x)).replace("01", "0 1").replace("10", "1 0").split()
    changes = [i for i, each in enumerate(runs) if len(each) >= 2]
    after_two = sum(len(runs[i]) == 2 for i in changes if i < len(runs) - 1)
    stays = sum(len(runs[i]) > 2 for i in changes)
    assert row["reversal_2"] == pytest.approx(after_two / (after_two + stays))


def test_series_are_not_joined() -> None:
    two = pl.DataFrame({"system": "s", "episode": [0, 0, 1, 1], "turn": [0, 1, 0, 1], "action": [0, 0, 1, 1]})
    row = sequence_tests(two).to_dicts()[0]
    assert (row["pairs"], row["alternation"], row["reversal_n_1"]) == (2, 0.0, 2)
    assert row["runs_z"] is None
    assert row["reversal_1"] == 0.0
    with np.errstate(all="raise"):  # nothing is divided by a margin of 0
        constant = sequence_tests(frame(np.ones((1, 9)))).to_dicts()[0]
    assert (constant["runs_p"], constant["markov_p"], constant["share"]) == (None, None, 1.0)


def test_series_of_unlike_lengths_in_any_order() -> None:
    """1011, 001001 and 11: runs 3 + 4 of μ 2.5 + 3.6667, s² .25 + .8889; 5 of 9 neighbours differ, 2 of 6 twice."""
    said = {2: [1, 0, 1, 1], 0: [0, 0, 1, 0, 0, 1], 1: [1, 1]}
    rows = [("s", episode, turn, x) for episode, own in said.items() for turn, x in enumerate(own)]
    turns = pl.DataFrame(rows, schema=["system", "episode", "turn", "action"], orient="row")
    row = sequence_tests(turns.sample(fraction=1, shuffle=True, seed=3), level=0.8).to_dicts()[0]
    assert row["runs_z"] == pytest.approx((7 - 2.5 - 11 / 3) / (0.25 + 8 / 9) ** 0.5)
    assert (row["pairs"], row["alternation"]) == (9, pytest.approx(5 / 9))
    # neighbouring changes correlate by (2/6 - (5/9)²) / (5/9 · 4/9) = .1: nine pairs are worth 9 / 1.2 = 7.5
    between = (row["alternation_low"], row["alternation_high"])
    assert between == pytest.approx(tuple(map(float, wilson(5 / 9 * 7.5, 7.5, level=0.8))))


def test_worked_alternation_and_type_one_error() -> None:
    row = sequence_tests(frame(np.array([[1, 0] * 4]))).to_dicts()[0]
    assert row["alternation"] == 1.0
    assert row["runs_z"] == pytest.approx(2.2913, abs=1e-4)
    rng = np.random.default_rng(1)
    null = sequence_tests(frame(rng.random((600, 200)) < 0.38))
    for test in ("runs", "markov"):
        assert 0.02 <= (null[f"{test}_p"] <= 0.05).mean() <= 0.08
    held = (null["alternation_low"] <= 2 * 0.38 * 0.62) & (null["alternation_high"] >= 2 * 0.38 * 0.62)
    assert 0.92 <= held.mean() <= 0.98
    turning = sequence_tests(frame(np.cumsum(rng.random((100, 400)) < 0.65, axis=1) % 2))
    assert (turning["runs_p"] <= 0.05).mean() > 0.95


def test_where_runs_part() -> None:
    assert first_divergence([], [1]) == 1.0
    trials = pl.DataFrame({"system": "s", "task": ["a", "a", "a", "b"], "ids": [[1, 2, 3], [1, 2, 4], [9, 2, 3], [1]]})
    row = divergences(trials, tokens="ids").to_dicts()
    assert row == [{"system": "s", "task": "a", "divergence": pytest.approx(2 / 9), "pairs": 3}]


def test_bad_input_is_named() -> None:
    with pytest.raises(InputError, match="'yes' is neither"):
        sequence_tests(frame(np.ones((1, 3))).with_columns(action=pl.lit("yes")))
    with pytest.raises(MissingColumnError, match="did you mean 'action'"):
        sequence_tests(frame(np.ones((1, 3))), action="acton")


def test_shares_are_of_zeros_and_ones() -> None:
    turns = pl.DataFrame({"system": ["a"] * 4 + ["b"] * 5, "action": [0, 1, 0, 0, 1, 1, 0, 1, None]})
    found = share_differences(turns)
    assert found.select("system", "other", "difference").rows() == [("a", "b", -0.5)]
    other = pl.DataFrame({"system": ["x"] * 5 + ["y"] * 3 + ["z"] * 7, "action": [1] * 3 + [0] * 4 + [1] * 7 + [0]})
    found_of = share_differences(other)  # of x and y: 4 of 8, so z = .26667 / (.5 · sqrt(1/5 + 1/3)) = .7303
    assert found_of["p"].to_list() == pytest.approx([0.46521, 0.31049, 0.09764], abs=1e-5)
    assert found_of["corrected"].to_list() == pytest.approx([0.62099, 0.62099, 0.29291], abs=1e-5)
    assert share_differences(turns.with_columns(pl.col("action").cast(pl.Float64).fill_null(np.nan))).equals(found)
    for wrong in (0.9, 2, "yes"):
        with pytest.raises(InputError, match=f"share_differences: action {wrong!r} is neither 0 nor 1"):
            share_differences(turns.with_columns(action=pl.lit(wrong)))
