from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.errors import MissingColumnError
from palaestra.evaluation.anchors import (
    capability_level,
    gap_closed,
    improvement,
    luck_of_the_best,
    normalise_between,
    standardise_error,
)

ANCHORS = {
    "llm-merging": (0.4933, 0.83), "backdoor": (9.3687, 67.5732), "temporal action": (0.12635, 0.4859),
    "unlearning": (0.060856, 0.098497), "meta-learning": (0.17279, 0.699), "recommendation": (0.08039, 0.41208),
}  # fmt: skip


def test_mlrc_bench() -> None:
    merging, backdoor = ANCHORS["llm-merging"], ANCHORS["backdoor"]
    assert 100 * normalise_between(0.510, *merging) == pytest.approx(4.96, abs=0.005)
    assert 100 * normalise_between(14.78, *backdoor) == pytest.approx(9.30, abs=0.005)
    anchors = {"b": [merging[0], backdoor[0]], "r": [merging[1], backdoor[1]]}
    table = pl.DataFrame({"dev": [1.0, 99.0], "test": [0.510, 14.78], **anchors})
    assert table.select(capability_level("dev", "test", "b", "r")).to_series().to_list() == [5, 6]
    for low, high in ANCHORS.values():
        assert normalise_between(low, low, high) == 0
        assert normalise_between(high, low, high) == 1


def test_a_margin_of_just_5_percent_or_of_just_a_thousandth_is_enough() -> None:
    table = pl.DataFrame({"d": 1.0, "test": [1.0, 0.99, 1e-3, 0.99e-3], "b": 0.0, "r": [20.0, 20.0, 0.01, 0.01]})
    assert table.select(capability_level("d", "test", "b", "r")).to_series().to_list() == [6, 5, 6, 5]


def test_as_good_as_the_baseline_does_not_beat_it() -> None:
    table = pl.DataFrame({"dev": [0.5, 0.6, 0.5], "test": [0.5, 0.5, 0.4]})
    assert table.select(capability_level("dev", "test", pl.lit(0.5), pl.lit(1.0))).to_series().to_list() == [3, 4, 3]


def test_forms() -> None:
    assert normalise_between(2.0, 4.0, 0.0) == 0.5, "a loss: smaller is better"
    assert np.isnan(normalise_between(1.0, 2.0, 2.0))
    frame = pl.DataFrame({"s": [1.0, 3.0], "b": [0.0, 3.0], "r": [2.0, 3.0]})
    found = frame.select(normalise_between(pl.col("s"), pl.col("b"), pl.col("r"))).to_series().to_list()
    assert found == [0.5, None]
    assert improvement(0.6, 0.5) == pytest.approx(0.2)
    assert improvement(-1.0, -2.0) == 0.5, "of a negative baseline better is more"
    assert standardise_error(1.0, 3.0, 2.0) == -1.0


def test_luck() -> None:
    assert luck_of_the_best(1) == pytest.approx(0, abs=1e-9)
    assert luck_of_the_best(2) == pytest.approx(1 / np.sqrt(np.pi))
    best = np.random.default_rng(0).standard_normal((20_000, 8)).max(1).mean()
    assert luck_of_the_best(8) == pytest.approx(best, abs=0.02)


def test_a_run_that_failed_has_no_score_however_it_is_written() -> None:
    anchors = {"task": "a", "baseline": 0.5, "reference": 1.0}
    none = pl.DataFrame({**anchors, "dev": [None, 0.8], "test": [None, 0.9]})
    nan = none.with_columns(pl.col("dev", "test").fill_null(float("nan")))
    level = capability_level("dev", "test", "baseline", "reference")
    assert nan.select(level).to_series().to_list() == none.select(level).to_series().to_list() == [1, 6]
    for reducer in ("dev", "max", "mean", "median"):
        assert gap_closed(nan, reducer).equals(gap_closed(none, reducer))
    blank = none.head(1).with_columns(pl.col("dev", "test").cast(pl.String))
    for reducer in ("dev", "max", "mean", "median"):
        assert gap_closed(none.with_columns(reference="baseline"), reducer)["closed"].to_list() == [None], "no gap"
    assert gap_closed(blank).rows() == [("a", 1, 1, 1, 0.0)], "as a CSV gives a column without a value"


def test_the_level_is_of_the_scores_that_are_reduced() -> None:
    """The best run by dev misses the baseline; another closes .8 of the gap."""
    runs = pl.DataFrame({"task": "a", "dev": [0.9, 0.8], "test": [0.4, 0.9], "baseline": 0.5, "reference": 1.0})
    found = {r: gap_closed(runs, r).select("level", "closed").row(0) for r in ("dev", "max", "mean")}
    assert found == {"dev": (4, pytest.approx(-0.2)), "max": (6, pytest.approx(0.8)), "mean": (6, pytest.approx(0.3))}
    failed = runs.with_columns(test=pl.when(pl.col("dev") < 0.9).then("test"))
    assert gap_closed(failed, "dev").select("level", "failed").row(0) == (2, 1)
    assert gap_closed(failed, "max").select("level", "failed").row(0) == (6, 1)
    nothing = runs.with_columns(test=pl.lit(None, pl.Float64))
    assert {gap_closed(nothing, r)["level"].item() for r in ("dev", "max", "mean", "median")} == {2}


def test_a_run_has_snapshots_only_if_the_table_says_so() -> None:
    """Two tasks with runs of the same names; the best snapshot by dev stands for the run, a run without dev for one."""
    rows = {
        "task": ["a", "b", "a", "b", "a"], "run": ["x"] * 4 + ["y"], "snapshot": [0, 1, 1, 0, 0],
        "dev": [0.2, 0.1, 0.3, 0.9, None], "test": [0.9, 0.8, 0.4, 0.6, 1.0], "baseline": 0.0, "reference": 1.0,
    }  # fmt: skip
    runs = pl.DataFrame(rows)
    assert gap_closed(runs, "mean").select("task", "runs", "closed").rows() == [("a", 2, 0.7), ("b", 1, 0.6)]
    bare = gap_closed(runs.drop("snapshot"), "mean").select("runs", "closed").rows()
    assert bare == [(3, pytest.approx(2.3 / 3)), (2, pytest.approx(0.7))]
    with pytest.raises(MissingColumnError, match="'run'"):
        gap_closed(runs.drop("run"))


def test_a_test_below_the_baseline_without_a_development_score_beats_it_on_neither() -> None:
    table = pl.DataFrame({"dev": [None, None], "test": [0.4, 0.6]}, schema_overrides={"dev": pl.Float64})
    assert table.select(capability_level("dev", "test", pl.lit(0.5), pl.lit(1.0))).to_series().to_list() == [3, 6]


def test_for_the_level_of_a_mean_a_failed_run_stands_at_the_baseline() -> None:
    runs = pl.DataFrame({"task": "t", "dev": [0.6, 0.6], "test": [0.52, None], "baseline": 0.5, "reference": 0.7})
    assert gap_closed(runs, "mean").select("closed", "level").row(0) == (pytest.approx(0.05), 6)
    half = runs.with_columns(test=pl.Series([0.518, None]))
    assert gap_closed(half, "mean")["level"].item() == 5
