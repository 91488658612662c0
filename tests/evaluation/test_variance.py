from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from tests.evaluation.conftest import Maker

from palaestra.evaluation import variance_components


def by_source(frame: pl.DataFrame, value: str = "success") -> dict[str, dict[str, float]]:
    return {row["source"]: row for row in variance_components(frame, value=value).to_dicts()}


def test_components_of_a_known_population(make_trials: Maker) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(0, 0.5, (8, 1, 1)) + rng.normal(0, 1, (1, 300, 1)) + rng.normal(0, 0.5, (8, 300, 1))
    found = by_source(make_trials({"s": x + rng.normal(0, 1, (8, 300, 3))}), "score")
    assert found["task"]["variance"] == pytest.approx(1.0, rel=0.2)
    assert found["trial"]["variance"] == pytest.approx(1.0, rel=0.1)
    assert found["task x run"]["variance"] == pytest.approx(0.25, rel=0.2)
    assert 0.05 < found["run"]["variance"] < 0.6
    assert sum(row["share"] for row in found.values()) == pytest.approx(1.0)
    assert found["task"]["n"] == 7200
    assert [found[name]["units"] for name in ("task", "run", "task x run", "trial")] == [300, 8, 2400, 7200]
    assert found["run"]["low"] is None


def test_one_run_and_one_trial_leave_what_cannot_be_told(make_trials: Maker) -> None:
    rng = np.random.default_rng(1)
    found = by_source(make_trials({"s": rng.random((30, 4)) < 0.5}))
    assert found["run"]["variance"] is None
    assert found["task x run"]["variance"] is None
    assert found["task"]["share"] < 0.2
    assert found["task"]["low"] == pytest.approx(1 - found["trial"]["high"])
    single = by_source(make_trials({"s": rng.random((30, 1)) < 0.5}))
    assert single["trial"]["variance"] is None
    assert single["task"]["share"] == 1.0


def test_share_of_the_task_covers(make_trials: Maker) -> None:
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(120):
        row = by_source(make_trials({"s": rng.random((40, 6)) < rng.beta(2, 2, (40, 1))}))["task"]
        hits += row["low"] <= 0.2 <= row["high"]
    assert 0.89 <= hits / 120 <= 1.0
