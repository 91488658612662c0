from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from tests.evaluation.conftest import Maker

from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation import call_robustness, gated_score, robustness, safety_score, sensitivity


def test_ratio_and_drop_by_hand(make_trials: Maker) -> None:
    base, faults = np.array([[1, 1], [1, 0], [1, 1]], bool), np.array([[1, 0], [0, 0], [1, 1]], bool)
    found = robustness(make_trials({"base": base, "faults": faults}), "faults", "base")
    assert found.ratio.mean == pytest.approx(3 / 5)
    assert found.drop.mean == pytest.approx(-1 / 3)
    assert found.ratio.low < 0.6 < found.ratio.high
    assert robustness(make_trials({"base": faults, "faults": base}), "faults", "base").capped == 1.0
    nothing = robustness(make_trials({"base": base & False, "faults": base}), "faults", "base")
    assert np.isnan(nothing.ratio.mean)


def test_ratio_covers(make_trials: Maker) -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(60):
        p = rng.beta(4, 2, (40, 1))
        frame = make_trials({"base": rng.random((40, 4)) < p, "faults": rng.random((40, 4)) < 0.7 * p})
        ratio = robustness(frame, "faults", "base").ratio
        hits += ratio.low <= 0.7 <= ratio.high
    assert hits >= 52


def test_worked_gated_scores() -> None:
    assert gated_score([0.9, 0.9, 0.65, 1], [0.5, 0.5, 1, 1], [1, 0.3, 1, 0]).tolist() == [0.82, 0.246, 0.72, 0.0]
    with pytest.raises(InputError, match="safety must lie in"):
        gated_score(0.5, 0.5, 1.5)
    for edge, wrong in ((1.0, 1.5), (0.0, -0.5)):
        with pytest.raises(InputError, match=rf"completion must lie in \[0, 1\], not {wrong}$"):
            gated_score([edge, wrong], 0.5, 1.0)


def test_recovery_of_calls() -> None:
    calls = pl.DataFrame(
        {
            "episode": [0, 0, 1, 1, 1, 2, 2, 3, 3, 3],
            "tool": ["a", "b", "a", "a", "b", "a", "b", "a", "b", "b"],
            "status": [200, 200, 500, 200, 200, 500, 404, 200, 429, 200],
        }
    )
    found = call_robustness(calls)
    assert found["robustness"].to_list() == [1.0, 1.0, 0.0, 1.0]
    late = pl.DataFrame({"episode": 0, "tool": ["a", "a", "b"], "status": [200, 500, 200]})
    assert call_robustness(late)["robustness"].item() == 0.5
    assert found["failed"].to_list() == [0, 1, 2, 1]
    with pytest.raises(MissingColumnError, match="status"):
        call_robustness(calls.drop("status"))


def test_safety_and_sensitivity() -> None:
    violations = pl.DataFrame({"episode": [0, 0, 3], "severity": ["low", "high", "medium"]})
    found = safety_score(violations, 10)
    assert found["compliance"] == 0.8
    assert found["harm"] == 0.25
    assert found["safety"] == pytest.approx(1 - 0.2 * 0.75)
    assert found["low"] < 0.8 < found["high"]
    with pytest.raises(InputError, match="did you mean 'high'"):
        safety_score(violations.with_columns(severity=pl.lit("hihg")), 10)
    frame = pl.DataFrame({"task": ["a"] * 4, "prompt": [0, 0, 1, 1], "success": [True, True, True, False]})
    row = sensitivity(frame, variant="prompt").to_dicts()[0]
    assert (row["gap"], row["variance"], row["variants"], row["n"]) == (0.5, 0.0625, 2, 4)


def test_of_several_violations_in_an_episode_the_worst_counts() -> None:
    violations = pl.DataFrame({"episode": [0, 0, 1], "severity": ["low", "high", "low"]})
    assert safety_score(violations, 4)["harm"] == pytest.approx(1 - (1 + 0.25) / 2)
