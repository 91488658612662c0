"""ResearchGym's run folders [76] (arXiv 2602.15112): metadata, status, cost summary, and an inspector's verdict.

A folder is an episode. Its artefacts' names are from the released README; what is inside them is not documented there,
so fields are looked up under the names that their meaning suggests, and what is unknown stays in `metadata`. A run with
a critical violation keeps its score, but `claimed` is false and it counts in no claim.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.evaluation.logs.rows import Problem, Rows, rest, text

FILES = ("metadata.json", "status.json", "plan.json", "logs/cost_summary.json", "inspection.json", "scores.json")


@dataclass(frozen=True)
class ResearchBudget:
    """Budget of a ResearchGym run, in hours and dollars."""

    hours: float = 24.0
    dollars: float = 10.0


def read_runs(folder: str | Path, *, budget: ResearchBudget | None = None) -> tuple[Turns, list[Problem]]:
    """Reads ResearchGym's run folders: (turns, problems); a row per run with hours, cost, verdict and over_budget.

    folder: of the run, below the one that is given.

    scores.json (ours: {"score", "baseline", "reference"}) gives the score and its anchors for `normalise_between`.
    success: the score is better than the baseline; null without both.

    Raises:
        InputError: no run in the folder.
    """
    budget = budget or ResearchBudget()
    rows, extras = Rows(str(folder)), []
    for path in sorted(p.parent for p in Path(folder).rglob("status.json")):
        found = {name: _read(path / name, rows) for name in FILES}
        meta, status, scores = found["metadata.json"], found["status.json"], found["scores.json"]
        verdict = found["inspection.json"]
        broken = [v for v in verdict.get("violations") or [] if isinstance(v, Mapping)]
        critical = any(v.get("severity") == "critical" for v in broken)
        cost = _first(found["logs/cost_summary.json"], "total_cost", "total_cost_usd", "cost")
        hours = _first(status | meta, "hours", "elapsed_hours", "runtime_hours")
        score, baseline = scores.get("score"), scores.get("baseline")
        state = _first(status, "status", "state")
        rows.episode(
            str(path),
            [{"cost": cost, "metadata": rest(found, ())}],
            system=_first(meta, "agent", "agent_name", "model"),
            task=_first(meta, "task", "task_name", "task_id") or path.parent.name,
            score=score,
            success=_above(score, baseline),
            error=f"run: {text(state)}" if isinstance(state, str) and state.lower() in ("failed", "error") else None,
        )
        over = [x > most for x, most in ((hours, budget.hours), (cost, budget.dollars)) if isinstance(x, int | float)]
        extras.append({
            "folder": str(path.relative_to(folder)), "hours": hours,
            "baseline": baseline, "reference": scores.get("reference"),
            "verdict": verdict.get("verdict"), "violations": len(broken), "claimed": not critical,
            "over_budget": any(over) if over else None,
        })  # fmt: skip
    if not extras:
        raise InputError(f"{folder}: no run folder (one with status.json)")
    schema = {
        "folder": pl.String,
        "baseline": pl.Float64,
        "reference": pl.Float64,
        "hours": pl.Float64,
        "verdict": pl.String,
        "violations": pl.Int64,
        "claimed": pl.Boolean,
        "over_budget": pl.Boolean,
    }
    added = pl.DataFrame(extras, schema=schema, strict=False)
    return Turns(rows.frame().hstack(added)), rows.problems


def _read(path: Path, rows: Rows) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        rows.problem(str(path), error)
        return {}
    if not isinstance(said, dict):
        rows.problem(str(path), f"expected an object, found {type(said).__name__}")
        return {}
    return said


def _above(score: Any, baseline: Any) -> bool | None:
    known = isinstance(score, int | float) and isinstance(baseline, int | float)
    return bool(score > baseline) if known else None


def _first(record: Mapping[str, Any], *names: str) -> Any:
    return next((record[name] for name in names if record.get(name) is not None), None)
