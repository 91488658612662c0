"""Questions to files that came with systems of the atlas: versions, hazards, gaps, attempts, integrity."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from palaestra.errors import InputError
from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.anchors import gap_closed
from palaestra.evaluation.attempts import resource_efficiency
from palaestra.evaluation.population import hazard_ratio
from palaestra.evaluation.sequences import share_differences


def test_versions_are_compared_two_by_two() -> None:
    table = pl.DataFrame({"system": ["a"] * 50 + ["b"] * 50 + ["c"] * 50, "action": [1] * 50 + [0] * 50 + [0, 1] * 25})
    found = share_differences(table)
    assert found.select("system", "other").rows() == [("a", "b"), ("a", "c"), ("b", "c")]
    assert (found["corrected"] >= found["p"]).all()
    assert found["corrected"].max() < 0.01


def test_a_hazard_ratio_is_found_or_says_why_not() -> None:
    rng = np.random.default_rng(0)
    k = rng.integers(3, size=4000)
    rows = pl.DataFrame({"item": "i", "time": rng.integers(5, size=4000), "exposure": k})
    rows = rows.with_columns(adopted=pl.Series(rng.random(4000) < 0.1 * 2.0**k))
    assert hazard_ratio(rows).low < 2 < hazard_ratio(rows).high
    few = rows.head(100)
    parts = hazard_ratio(few.with_columns(pl.col("exposure") / 900))  # the same in another unit
    assert np.log(parts.ratio) == pytest.approx(900 * np.log(hazard_ratio(few).ratio), rel=1e-9)
    with pytest.raises(InputError, match="nobody adopted"):
        hazard_ratio(rows.with_columns(adopted=False))
    with pytest.raises(InputError, match="never differ"):
        hazard_ratio(rows.with_columns(exposure=1))


def test_a_failed_run_closes_nothing_and_the_reducer_is_named() -> None:
    runs = pl.DataFrame(
        {"task": "a", "dev": [0.2, 0.9, None], "test": [0.8, 0.4, None], "baseline": 0.0, "reference": 1.0}
    )
    closed = {name: gap_closed(runs, name)["closed"].item() for name in ("dev", "max", "mean", "median")}  # type: ignore[arg-type]
    assert closed == {"dev": 0.4, "max": 0.8, "mean": pytest.approx(0.4), "median": 0.4}
    with pytest.raises(InputError, match="did you mean 'max'"):
        gap_closed(runs, "maxx")  # type: ignore[arg-type]


def test_efficiency_of_attempts_without_tokens() -> None:
    rows = [{"system": "s", "group": 0, "episode": 0, "turn": n, "score.attempt": 5.0 * n} for n in range(3)]
    found = resource_efficiency(pl.DataFrame(rows)).row(0, named=True)
    assert (found["best"], found["attempts"], found["per_million"]) == (10, 3, None)
    assert found["per_attempt"] == pytest.approx(10 / 3)


def test_integrity_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "fit.py").write_text("accuracy = .8310\n")
    (tmp_path / "hashes.json").write_text(json.dumps({"grade.py": "0" * 64}))
    (tmp_path / "reported.json").write_text(json.dumps({"accuracy": 0.831}))
    found = analyze("integrity", tmp_path / "run", tmp_path / "hashes.json", tmp_path / "reported.json")
    assert found["rule"].to_list() == ["grader changed", "metric typed in"]
    with pytest.raises(InputError, match="did you mean 'square'"):
        analyze('exposure("squared")', tmp_path, tmp_path)


def test_a_matrix_of_two_keys(tmp_path: Path) -> None:
    rows = [{"task": f"{n}", "domain": "ab"[n % 2], "level": "L1", "success": n % 4 < 2} for n in range(8)]
    pl.DataFrame(rows).write_csv(tmp_path / "trials.csv")
    found = analyze('matrix("domain", "level")', tmp_path / "trials.csv")
    assert found.filter(pl.col("row") == "a", pl.col("column") == "L1").row(0, named=True)["n"] == 4
    assert found.filter(pl.col("row") == "all")["mean"].to_list() == [0.5, 0.5]
