"""The page of `palaestra audit-judge`: findings, scores of benchmarks, and model reward beside truth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from markupsafe import Markup

from palaestra.evaluation.audits.finding import Finding
from palaestra.interface.report.page import render, write_page
from palaestra.interface.report.plots import Series, curves, legend

Part = tuple[str, pl.DataFrame, Sequence[dict[str, Any]], Sequence[Finding]]


def write_judge_audit(path: Path, parts: Sequence[Part], *, truth: str = "truth") -> Path:
    """Write the HTML page of audits of judges, from (name, rows, scores, findings) per file; returns its path.

    Raises:
        StorageError: it cannot be written.
    """
    shown = []
    for name, rows, tables, findings in parts:
        told = [
            {"verdict": f.verdict, "audit": f.audit, "sentence": f.sentence, "fix": f.fix, "rows": list(f.rows)}
            for f in findings
        ]
        curve = _curve(rows, truth)
        names = legend(["model reward", truth]) if curve else ""
        shown.append({"name": name, "tables": list(tables), "findings": told, "curve": curve, "legend": names})
    verdicts = [f.verdict for *_, findings in parts for f in findings]
    page = render("judges.html", title="Audit of scorers", parts=shown, total=len(verdicts), bad=verdicts.count("fail"))
    return write_page(Path(path), page)


def _curve(rows: pl.DataFrame, truth: str) -> Markup | str:
    """Both by step, each from 0 to 1 over its own range; nothing for a table that is no curve."""
    if not {"step", "reward", truth} <= set(rows.columns) or not rows["step"].dtype.is_numeric():
        return ""
    means = rows.group_by("step").agg(pl.col("reward", truth).cast(pl.Float64).mean()).drop_nulls().sort("step")
    if len(means) < 2:
        return ""
    lines = []
    for index, name in enumerate(("reward", truth)):
        x = means[name].to_numpy().astype(float)
        x = (x - x.min()) / (np.ptp(x) or 1.0)
        lines.append(Series("model reward" if index == 0 else truth, index, means["step"].to_numpy(), x, x, x))
    return curves(lines, what="model reward beside the truth", over="step")
