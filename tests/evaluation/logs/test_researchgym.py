from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from palaestra.errors import InputError
from palaestra.evaluation import trials
from palaestra.evaluation.logs.researchgym import ResearchBudget, read_runs


def run(folder: Path, **files: dict) -> None:
    for name, said in files.items():
        path = folder / {"cost": "logs/cost_summary.json"}.get(name, f"{name}.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(said))


def test_runs(tmp_path: Path) -> None:
    meta = {"task": "replay", "agent": "basic-agent"}
    violation = {"type": "edited grader", "severity": "critical", "file": "grade.sh"}
    run(tmp_path / "001", metadata=meta, status={"status": "completed", "hours": 11.0}, cost={"total_cost": 9.5},
        scores={"score": 0.8, "baseline": 0.7, "reference": 0.9})  # fmt: skip
    run(tmp_path / "002", metadata=meta, status={"status": "completed"}, cost={"total_cost": 12},
        inspection={"verdict": "SUSPICIOUS", "violations": [violation]},
        scores={"score": 0.99, "baseline": 0.7})  # fmt: skip
    run(tmp_path / "003", metadata=meta, status={"status": "failed"})
    (tmp_path / "003" / "plan.json").write_text("{")
    turns, problems = read_runs(tmp_path, budget=ResearchBudget(hours=12))
    assert turns["claimed"].to_list() == [True, False, True]
    assert turns["over_budget"].to_list() == [False, True, None]
    assert turns["success"].to_list() == [True, True, None]
    assert [Path(p.where).name for p in problems] == ["plan.json"]
    table = trials(turns)
    assert table["score"].to_list() == [0.8, 0.99, None]
    assert table["error"].to_list() == [None, None, "run: failed"]
    claims = trials(turns.filter(pl.col("claimed")))
    assert len(claims) == 2
    with pytest.raises(InputError, match="no run folder"):
        read_runs(tmp_path / "none")
