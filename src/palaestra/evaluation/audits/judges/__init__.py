"""Audits of judges: can this scorer be trusted as a reward, as a control, in a panel?

Each returns a `Finding`: a number with its interval, a verdict, a sentence and the fix. `pass` is to trust, `warn` to
look at, `fail` not to trust; `cannot tell` says what is missing, or that the interval is too wide. Missing is not zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import polars as pl

from palaestra.errors import InputError, PalaestraError
from palaestra.evaluation.audits.finding import Finding
from palaestra.evaluation.audits.judges.common import ALPHA, filled_columns, places, problem_column
from palaestra.evaluation.audits.judges.compare import compare_judges
from palaestra.evaluation.audits.judges.discrimination import discrimination
from palaestra.evaluation.audits.judges.drift import drift, sycophancy
from palaestra.evaluation.audits.judges.members import accuracy, agreement, error_correlation, parse_failures
from palaestra.evaluation.audits.judges.nuisance import nuisance_slope
from palaestra.evaluation.audits.judges.position import order_calibration, position_bias, position_bias_test
from palaestra.evaluation.audits.judges.reward import injection, overoptimisation, reward_spread, tie_rules
from palaestra.evaluation.comparison import holm
from palaestra.evaluation.logs.columns import flag

__all__ = [
    "accuracy",
    "agreement",
    "audit_judge",
    "compare_judges",
    "discrimination",
    "drift",
    "error_correlation",
    "injection",
    "kind_of",
    "nuisance_slope",
    "order_calibration",
    "overoptimisation",
    "parse_failures",
    "position_bias",
    "position_bias_test",
    "reward_spread",
    "sycophancy",
    "tie_rules",
]

KINDS = {
    "verdicts": ("item", "value"),
    "scores": ("group", "score", "correct"),
    "curve": ("step", "reward"),
}
"""What an audit reads, by the columns that it must have."""


def kind_of(rows: pl.DataFrame) -> str:
    """Kind of a table of judgements by its columns: `verdicts`, `scores` or `curve`; else raises InputError.

    Raises:
        InputError: none of them.
    """
    for kind, names in KINDS.items():
        if all(name in rows.columns for name in names):
            return kind
    wanted = "; ".join(f"{kind} have {', '.join(names)}" for kind, names in KINDS.items())
    raise InputError(f"audit-judge: columns {', '.join(rows.columns[:8])} are none that are known: {wanted}")


def audit_judge(
    rows: pl.DataFrame,
    *,
    truth: str = "truth",
    nuisances: Sequence[str] = ("length",),
    match: Sequence[str] = (),
    seed: int = 0,
) -> list[Finding]:
    """List of `Finding`: every judge audit that fits a table of verdicts, of benchmark scores, or of a training curve.

    The tests among them share one chance to suspect a fair judge, `ALPHA` in all (Holm).

    Args:
        rows: The table.
        truth: Column with the right value.
        nuisances: Columns that a score should not follow. `length` is made from `response` where it is missing, and of
            comparisons it is by how much the response is longer than the `reference`.
        match: What makes two rows alike in content; default `content`, else the problem (task, prompt or group) and the
            truth. Of verdicts also judge, criterion and order.
        seed: Of the bootstraps.

    Returns:
        A finding each. An audit that cannot run says why.

    Raises:
        InputError: an empty table, one of no known kind, or `order` or `injected` with a value that they do not take.
    """
    if not len(rows):
        raise InputError("audit-judge: the table is empty")
    kind = kind_of(rows)
    rows = _with_length(rows)
    chosen: list[tuple[str, Callable[..., Finding]]] = []
    score, label = {"verdicts": ("value", truth), "scores": ("score", "correct"), "curve": ("reward", truth)}[kind]
    if kind == "verdicts" and "order" in rows.columns:
        rows = rows.with_columns(order=places(rows, "audit-judge"))
    if "injected" in rows.columns:
        rows = rows.with_columns(injected=flag(rows, "injected", "audit-judge"))
    clean = rows.filter(~pl.col("injected").fill_null(False)) if "injected" in rows.columns else rows
    if kind == "verdicts":
        chosen += [("parsing", partial(parse_failures, clean)), ("ties", partial(discrimination, clean))]
        if "order" in rows.columns and rows["order"].is_not_null().any():
            chosen += [("position", partial(position_bias, clean)), ("order", partial(order_calibration, clean))]
        chosen.append(("drift", partial(drift, clean, truth=truth)))
        if "claim" in rows.columns:
            chosen.append(("sycophancy", partial(sycophancy, clean, truth=truth)))
        if truth in rows.columns or truth != "truth":  # a column that is named is missed
            chosen.append(("accuracy", partial(accuracy, clean, truth=truth)))
        if any(n in rows.columns and rows[n].n_unique() > 1 for n in ("judge", "sample")):
            chosen.append(("agreement", partial(agreement, clean, seed=seed)))
            if truth in rows.columns or truth != "truth":
                chosen.append(("errors", partial(error_correlation, clean, truth=truth, seed=seed)))
        if "injected" in rows.columns:
            chosen.append(("injection", partial(injection, rows)))
    if kind == "scores":
        chosen.append(("ties", partial(tie_rules, clean)))
    if kind == "curve":
        chosen.append(("overoptimisation", partial(overoptimisation, clean, truth=truth, seed=seed)))
    if kind != "verdicts" and "group" in rows.columns:
        chosen.append(("spread", partial(reward_spread, clean, reward=score)))
    about = problem_column(rows) if kind == "verdicts" else next(iter(filled_columns(rows, "content", "group")), None)
    same = list(match) or (
        ["content"] if about == "content" else [*([about] if about else []), *filled_columns(rows, label)]
    )
    options: dict[str, Any] = {}
    if kind == "verdicts" and same:
        matched = bool(match) or about == "content" or label in same
        options = {"cluster": match or [about or label], "matched": matched}
        same = list(dict.fromkeys((*same, *filled_columns(rows, "judge", "criterion", "order"))))
    for name in nuisances:
        if same and name in rows.columns and kind != "curve":
            run = partial(nuisance_slope, clean, nuisance=name, score=score, match=same, **options)
            chosen.append((f"nuisance {name}", run))
        elif name != "length":
            run = partial(nuisance_slope, clean, nuisance=name, score=score, match=same or "content")
            chosen.append((f"nuisance {name}", run))
    return _together([_answer(name, run) for name, run in chosen], [run for _, run in chosen])


def _with_length(rows: pl.DataFrame) -> pl.DataFrame:
    """The table with `length`, in characters; of comparisons by how much the response is longer than the reference."""
    texts = [name for name in ("response", "reference") if name in rows.columns and rows[name].dtype == pl.String]
    if "response" not in texts or ("length" in rows.columns and "reference" not in texts):
        return rows
    length = pl.col("response").str.len_chars().cast(pl.Int64)
    return rows.with_columns(length=length - pl.col("reference").str.len_chars() if "reference" in texts else length)


def _together(findings: list[Finding], runs: list[Callable[..., Finding]]) -> list[Finding]:
    """Findings after Holm's correction, so that all tests share one chance of a false alarm."""
    p = [finding.numbers.get("p", math.nan) for finding in findings]
    return [
        run(alpha=0.0) if adjusted > ALPHA >= own else finding
        for finding, run, own, adjusted in zip(findings, runs, p, holm(p), strict=True)
    ]


def _answer(name: str, run: Callable[..., Finding]) -> Finding:
    try:
        return run()
    except PalaestraError as error:
        return Finding(name, "cannot tell", str(error))
