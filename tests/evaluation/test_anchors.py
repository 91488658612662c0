from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.evaluation.anchors import (
    capability_level,
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


def test_forms() -> None:
    assert normalise_between(2.0, 4.0, 0.0) == 0.5, "a loss: smaller is better"
    assert np.isnan(normalise_between(1.0, 2.0, 2.0))
    frame = pl.DataFrame({"s": [1.0, 3.0], "b": [0.0, 3.0], "r": [2.0, 3.0]})
    found = frame.select(normalise_between(pl.col("s"), pl.col("b"), pl.col("r"))).to_series().to_list()
    assert found == [0.5, None]
    assert improvement(0.6, 0.5) == pytest.approx(0.2)
    assert standardise_error(1.0, 3.0, 2.0) == -1.0


def test_luck() -> None:
    assert luck_of_the_best(1) == pytest.approx(0, abs=1e-9)
    assert luck_of_the_best(2) == pytest.approx(1 / np.sqrt(np.pi))
    best = np.random.default_rng(0).standard_normal((20_000, 8)).max(1).mean()
    assert luck_of_the_best(8) == pytest.approx(best, abs=0.02)
