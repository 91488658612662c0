"""Alpha and kappa: parity with the packages people use, and what is missing."""

import math

import numpy as np
import pytest

from palaestra.errors import InputError
from palaestra.evaluation.scorers import cohen_kappa, krippendorff_alpha

N = math.nan
TABLE = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, N, N, N],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, N, 3],
    [N, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, N],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, N],
]
"""Krippendorff's own example of four observers and twelve units."""


@pytest.mark.parametrize(
    ("measure", "alpha"),  # from the package krippendorff 0.9.0 on PyPI; the text of 2011 prints .743, .815, .849
    [("nominal", 0.743421052631579), ("ordinal", 0.8153875037548814), ("interval", 0.8491071428571428)],
)
def test_alpha_is_that_of_the_package(measure, alpha):
    found = krippendorff_alpha(TABLE, measure=measure)
    assert found.mean == pytest.approx(alpha, abs=1e-9)
    assert found.low < alpha < found.high + 1e-9
    assert (found.n, found.clusters) == (40, 11)


def test_large_values_do_not_cancel():
    shifted = krippendorff_alpha(np.array(TABLE) + 1e8, measure="interval", resamples=0)
    assert shifted.mean == pytest.approx(0.8491071428571428, abs=1e-6)


def test_alpha_of_chance_is_none_and_of_one_value_unknown():
    rng = np.random.default_rng(0)
    found = krippendorff_alpha(rng.integers(0, 3, (3, 500)), resamples=200)
    assert found.low < 0 < found.high
    assert math.isnan(krippendorff_alpha([[1, 1], [1, 1]]).mean)
    with pytest.raises(InputError, match="no item has two ratings"):
        krippendorff_alpha([[1, N], [N, 1]])
    with pytest.raises(InputError, match=r"shape \(2,\)"):
        krippendorff_alpha([1, 2])


def test_weights_of_words_want_their_order():
    a, b, order = ["low", "high", "mid", "high"], ["low", "low", "mid", "high"], ["low", "mid", "high"]
    numbers = [[order.index(each) for each in said] for said in (a, b)]
    for weights in (None, "linear", "quadratic"):
        found = cohen_kappa(a, b, weights=weights, order=order, resamples=0)
        assert found == cohen_kappa(*numbers, weights=weights, resamples=0)
    said = "the weights take the order high, low, mid; give another with order="
    assert cohen_kappa(a, b, weights="quadratic", resamples=0).caution.startswith(said)
    assert said not in cohen_kappa(a, b, resamples=0).caution
    with pytest.raises(InputError, match="'high' is not in order="):
        cohen_kappa(a, b, order=["low", "mid"])
    two = cohen_kappa(["yes", "no", "no"], ["yes", "no", "yes"], weights="linear", resamples=0)
    assert two.mean == cohen_kappa([1, 0, 0], [1, 0, 1], resamples=0).mean, "two have one distance"
    assert "the weights" not in two.caution
    gap = cohen_kappa([1, 1, 4], [1, 4, 4], weights="linear", order=[1, 2, 3, 4], resamples=0)
    assert gap.mean == cohen_kappa([1, 1, 4], [1, 4, 4], resamples=0).mean


@pytest.mark.parametrize("weights", [None, "linear", "quadratic"])
def test_kappa_is_that_of_scikit_learn(weights):
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(1)
    for _ in range(5):
        a = rng.integers(0, 5, 60)
        b = np.where(rng.random(60) < 0.6, a, rng.integers(0, 5, 60))
        wanted = metrics.cohen_kappa_score(a, b, weights=weights)
        assert cohen_kappa(a, b, weights=weights, resamples=0).mean == pytest.approx(wanted, abs=1e-12)


def test_kappa_leaves_out_what_one_did_not_judge():
    found = cohen_kappa([1, 1, 0, 0, None, 1], [1, 0, 0, 0, 1, N])
    assert (found.mean, found.n) == (0.5, 4)
    assert math.isnan(cohen_kappa(["a", "a"], ["a", "a"]).mean)
    with pytest.raises(InputError, match="2 and 1 verdicts"):
        cohen_kappa([1, 0], [1])
    with pytest.raises(InputError, match="judged by both"):
        cohen_kappa([1, None], [None, 1])


def test_kappa_takes_labels_of_several_types_where_order_does_not_count():
    found = cohen_kappa([1, 1, 0, 0, "unsure"], [1, 0, 0, 0, "unsure"])
    assert found.mean == cohen_kappa(["b", "b", "a", "a", "c"], ["b", "a", "a", "a", "c"], resamples=0).mean
    with pytest.raises(InputError, match="without an order: int, str"):
        cohen_kappa([1, "unsure"], [1, 0], weights="linear")


def test_the_intervals_hold_the_truth():
    """kappa of judges who agree by copying with p = .6 is .6; 200 draws of 80 items."""
    rng, held = np.random.default_rng(2), 0
    for seed in range(200):
        a = rng.integers(0, 3, 80)
        b = np.where(rng.random(80) < 0.6, a, rng.integers(0, 3, 80))
        found = cohen_kappa(a, b, resamples=200, seed=seed)
        held += found.low <= 0.6 <= found.high
    assert held >= 180
