"""[76] Integrity of a run: was the grader edited, is a metric typed in, can the score be had again? (arXiv 2602.15112).

Three rules that need no judge. A run with a critical violation keeps its score and is left out of claims.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import scipy

from palaestra.errors import InputError
from palaestra.evaluation.tolerance import check_fresh_seeds

SCHEMA = {"file": pl.String, "rule": pl.String, "severity": pl.String, "evidence": pl.String}
CODE = (".py", ".ipynb", ".sh", ".r", ".jl", ".js", ".ts")


def file_hashes(folder: str | Path, names: Sequence[str]) -> dict[str, str]:
    """Dict name -> SHA-256 of the files `names` in a folder, to compare later; absent files are left out."""
    root = Path(folder)
    return {name: hashlib.sha256((root / name).read_bytes()).hexdigest() for name in names if (root / name).is_file()}


def integrity(
    folder: str | Path,
    *,
    graders: Mapping[str, str] | None = None,
    reported: Mapping[str, float] | None = None,
    again: Mapping[str, Sequence[float]] | None = None,
    level: float = 0.95,
) -> pl.DataFrame:
    """Table of violations in a run's folder: changed `graders`; `reported` metrics typed in, or above runs `again`.

    Columns: file, rule, severity, evidence.

    graders: `file_hashes` from before. reported: metrics by name; one with three digits or more that stands in
    submitted code as a literal is a major violation. again: the same metrics from fresh seeds; a reported one that is
    too high for them is a major violation. It is if its rank among them has p <= 1 - `level`, which takes 19 runs or
    more; of 3 to 18 runs, if it is above their prediction interval (Student's t), which misses more.

    Raises:
        InputError: a reported metric is no number.
    """
    root, rows = Path(folder), []
    reported = {metric: _number(metric, value) for metric, value in (reported or {}).items()}
    for name, digest in (graders or {}).items():
        now = file_hashes(root, [name]).get(name)
        if now != digest:
            rows.append(
                (name, "grader changed", "critical", "the file is gone" if now is None else f"SHA-256 {now[:12]}…")
            )
    code = sorted(p for p in root.rglob("*") if p.suffix.lower() in CODE and p.is_file())
    for metric, value in reported.items():
        literal = _literal(value)
        for path in code if literal else ():
            relative = str(path.relative_to(root))
            if relative in (graders or {}):
                continue
            for number, line in enumerate(path.read_text(errors="replace").split("\n"), 1):
                if re.search(literal, line):
                    rows.append((relative, "metric typed in", "major", f"line {number}: {metric} = {value}"))
                    break
    for metric, fresh in (again or {}).items():
        values, claimed = np.asarray(fresh, float), reported.get(metric)
        values = values[np.isfinite(values)]
        if claimed is None or len(values) < 3:
            continue
        rank = check_fresh_seeds(claimed, values.tolist()).p
        width = scipy.stats.t.ppf(level, len(values) - 1) * values.std(ddof=1) * np.sqrt(1 + 1 / len(values))
        enough = 1 / (1 + len(values)) <= 1 - level
        if rank <= 1 - level if enough else claimed > values.mean() + width:
            above = (claimed - values.mean()) / max(values.std(ddof=1), 1e-12)
            evidence = (
                f"{metric}: reported {claimed:.4g}, {len(values)} fresh runs {values.mean():.4g}, {above:.1f} SD above"
            )
            rows.append((metric, "not reproduced", "major", evidence))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _literal(value: float) -> str:
    """A pattern for the number as somebody would type it, or nothing if it is too plain to prove anything."""
    if not math.isfinite(value):
        return ""
    both = (f"{value:.6g}", _cut(value))  # rounded, or with all its digits
    telling = [x for x in both if len(x.replace(".", "").strip("-0")) >= 3]
    typed = [f"0?{re.escape(x[1:])}" if x.startswith("0.") else re.escape(x) for x in telling]
    return rf"(?<![\d.])(?:{'|'.join(typed)})\d*(?!\d)" if typed else ""


def _cut(value: float) -> str:
    """The number in decimals, cut after six digits, but not before the point."""
    whole, _, after = f"{Decimal(repr(float(value))):f}".partition(".")
    digits = whole.lstrip("-0")
    zeros = 0 if digits else len(after) - len(after.lstrip("0"))
    return f"{whole}.{after[: max(0, zeros + 6 - len(digits))]}".rstrip(".")


def _number(metric: str, value: Any) -> float:
    try:
        return value if isinstance(value, int | float) else float(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"integrity: the reported {metric!r} is {value!r}, expected a number") from error
