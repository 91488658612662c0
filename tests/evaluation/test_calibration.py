from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from palaestra.errors import InputError
from palaestra.evaluation import calibration, calibration_pvalue
from palaestra.evaluation.calibration import _null_pvalue

pairs = st.lists(st.tuples(st.integers(0, 10).map(lambda x: x / 10), st.booleans()), min_size=3, max_size=30)


@settings(max_examples=30)
@given(pairs)
def test_summaries_against_their_definitions(rows: list[tuple[float, bool]]) -> None:
    c, s = np.array([r[0] for r in rows]), np.array([float(r[1]) for r in rows])
    found = calibration(c, s)
    assert found.brier.mean == pytest.approx(((c - s) ** 2).mean())
    bins = np.minimum((c * 10).astype(int), 9)
    ece = sum(abs((s - c)[bins == b].sum()) for b in range(10)) / len(c)
    assert found.ece.mean == pytest.approx(ece)
    if 0 < s.sum() < len(s):
        u = mannwhitneyu(c[s == 1], c[s == 0]).statistic / (s.sum() * (1 - s).sum())
        assert found.auroc.mean == pytest.approx(u)
    assert found.bins["n"].sum() == len(c)


def test_risk_coverage_of_distinct_confidences() -> None:
    c, s = np.array([0.9, 0.8, 0.7, 0.6]), np.array([1, 0, 1, 1])
    assert calibration(c, s).aurc.mean == pytest.approx(np.mean([0, 1 / 2, 1 / 3, 1 / 4]))
    perfect = calibration(np.linspace(1, 0, 2000), (np.arange(2000) < 1400).astype(float))
    assert perfect.eaurc.mean == pytest.approx(0.0, abs=1e-3)


def test_curve_has_counts_and_wilson_intervals() -> None:
    bins = calibration([0.05, 0.05, 0.95, 1.0], [False, False, True, True]).bins
    assert bins["n"].to_list() == [2, 2]
    assert bins["success"].to_list() == [0.0, 1.0]
    assert bins["high"][0] == pytest.approx(0.6576, abs=1e-4)


def test_interval_covers_and_a_calibrated_one_is_not_accused() -> None:
    rng = np.random.default_rng(0)
    covered, accused, spiegelhalter = 0, 0, 0
    for seed in range(60):
        q = rng.beta(2, 2, 80)
        s = rng.random(80) < q
        brier = calibration(q, s, seed=seed)
        covered += brier.brier.low <= 0.2 <= brier.brier.high
        accused += brier.ece_p <= 0.05
        assert brier.ece.low == 0 or brier.ece_p <= 0.05
        spiegelhalter += calibration_pvalue(q, s) <= 0.05
    assert covered >= 51
    assert max(accused, spiegelhalter) <= 8
    assert calibration_pvalue(np.full(400, 0.9), rng.random(400) < 0.6) < 1e-6


def test_clusters_widen() -> None:
    rng = np.random.default_rng(1)
    q = np.repeat(rng.random(40), 10)
    s = np.repeat(rng.random(40) < q[::10], 10)
    alone = calibration(q, s).brier
    together = calibration(q, s, cluster=np.repeat(np.arange(40), 10)).brier
    assert together.high - together.low > 2 * (alone.high - alone.low)
    assert (together.n, together.clusters) == (400, 40)


def test_bad_confidence_is_named() -> None:
    with pytest.raises(InputError, match=r"1\.2 is no confidence"):
        calibration([0.1, 1.2], [True, False])
    with pytest.raises(InputError, match="no trial"):
        calibration([None], [True])


def test_an_error_of_known_size_lies_between_the_ends() -> None:
    confidence = np.full(400, 0.9)
    found = calibration(confidence, np.arange(400) % 5 < 3).ece  # .6 succeed: the error is .3
    assert found.mean == pytest.approx(0.3)
    assert 0.2 < found.low < 0.29 < 0.31 < found.high < 0.4


def test_no_more_forecasters_are_simulated_than_were_asked_for() -> None:
    sure = np.full(1 << 15, 0.5)  # of so many trials 128 at a time
    assert _null_pvalue(sure, 0.0, 1, 129, np.random.default_rng(0)) == 1.0, "each is at least 0 off"


def test_a_p_of_just_what_the_level_leaves_is_rare_enough() -> None:
    found = calibration(np.ones(4), np.zeros(4), resamples=1, level=0.5)
    assert (found.ece_p, found.ece.low) == (0.5, 1.0)
