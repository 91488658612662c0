"""The table of proposals and silence (the published rows of Proactive Agent), and correlation with what follows."""

import math

import numpy as np
import polars as pl
import pytest

from palaestra.errors import InputError
from palaestra.evaluation.scorers import Confusion, confusion, rank_correlation


def test_the_published_row_of_an_agent():
    table = Confusion(tp=111, fp=112, tn=4, fn=0)
    assert table.recall == 1
    assert table.precision == pytest.approx(0.49776, abs=5e-6)
    assert table.accuracy == pytest.approx(0.50661, abs=5e-6)
    assert table.false_alarm == pytest.approx(0.50224, abs=5e-6)
    assert table.f1 == pytest.approx(0.66467, abs=5e-6)
    assert table.acted > 0.98  # recall 1 of who never stays silent


def test_the_published_row_of_the_reward_model():
    table = Confusion(tp=56, fp=6, tn=54, fn=4)
    numbers = (table.precision, table.recall, table.accuracy, table.f1)
    assert numbers == pytest.approx((0.90323, 0.93333, 0.91667, 0.91803), abs=5e-6)
    shown = table.table()
    assert (shown["low"] <= shown["value"]).all()
    assert (shown["value"] <= shown["high"]).all()


def test_silence_is_an_action_and_a_missing_verdict_is_nothing():
    rows = pl.DataFrame(
        {"action": ["x", "x", None, None, None, "x"], "accepted": [True, False, True, False, None, None]}
    )
    assert confusion(rows) == Confusion(1, 1, 1, 1, missing=2)
    assert confusion(rows, action_null_ok=False) == Confusion(1, 1, 0, 0, missing=4)
    assert confusion(rows.with_columns(action=pl.col("action").is_not_null())) == Confusion(1, 1, 1, 1, missing=2)
    as_csv = rows.with_columns(action=pl.col("action").is_not_null().cast(pl.Int64))
    assert confusion(as_csv) == Confusion(1, 1, 1, 1, missing=2), "false is silence, also as 0"
    assert confusion(as_csv.cast({"action": pl.Float64})) == Confusion(1, 1, 1, 1, missing=2)
    blank = rows.with_columns(
        pl.col("action").fill_null(" "), pl.Series("accepted", ["yes", "no", "yes", "no", "", "NA"])
    )
    assert confusion(blank) == Confusion(1, 1, 1, 1, missing=2)
    assert confusion(blank, action_null_ok=False) == Confusion(1, 1, 0, 0, missing=4)
    assert confusion(rows.with_columns(action=pl.lit(0.5))) == Confusion(2, 2, 0, 0, missing=2), "no truth, an amount"
    with pytest.raises(InputError, match="column 'accepted' takes true/false, yes/no or 1/0, not 'so so'"):
        confusion(blank.with_columns(accepted=pl.lit("so so")))
    assert math.isnan(Confusion(0, 0, 1, 0).precision)


def test_correlation_is_that_of_scipy_with_an_interval():
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(0)
    x = rng.normal(size=40)
    y = x + rng.normal(size=40)
    for kind, wanted in (("spearman", stats.spearmanr), ("pearson", stats.pearsonr), ("kendall", stats.kendalltau)):
        found = rank_correlation(x, y, kind=kind)
        assert found.mean == pytest.approx(wanted(x, y).statistic)
        assert found.low < found.mean < found.high
    r, half = np.corrcoef(x, y)[0, 1], 1.959964 / np.sqrt(37)
    pearson = rank_correlation(x, y, kind="pearson")
    assert (pearson.low, pearson.high) == pytest.approx((np.tanh(np.arctanh(r) - half), np.tanh(np.arctanh(r) + half)))
    assert rank_correlation([*x, None], [*y, 1.0]).n == 40
    assert "1 scorers lack" in rank_correlation([*x, None], [*y, 1.0]).caution
    with pytest.raises(InputError, match="it takes 3"):
        rank_correlation([1, 2], [2, 1])


def test_best_of_four_predicts_best_of_sixteen():
    """25 noisy scorers of Gaussian utilities: the correlation of RewardBench 2's claim, > .95 (arXiv 2506.01937)."""
    from palaestra.evaluation.scorers import best_of_k_accuracy

    rng = np.random.default_rng(0)
    best4, best16 = [], []
    for noise in np.linspace(0.1, 3, 25):
        utility = rng.normal(size=(1500, 16))
        score = utility + noise * rng.normal(size=utility.shape)
        best16.append(np.take_along_axis(utility, score.argmax(1)[:, None], 1).mean())
        four, seen = utility[:, :4], score[:, :4]
        right = four == four.max(1, keepdims=True)
        rows = {"group": np.repeat(np.arange(1500), 4), "score": seen.ravel(), "correct": right.ravel()}
        best4.append(best_of_k_accuracy(pl.DataFrame(rows)).mean)
    assert rank_correlation(best4, best16, kind="pearson").mean > 0.95
