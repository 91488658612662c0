"""Audits of judges: can this scorer be trusted as a reward, as a control, in a panel?

Each returns a `Finding`: a number with its interval, a verdict, a sentence and the fix. `pass` is to trust, `warn` to
look at, `fail` not to trust; `cannot tell` says what is missing, or that the interval is too wide. Missing is not zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import polars as pl

from palaestra.errors import InputError, PalaestraError
from palaestra.evaluation.audits.finding import Finding
from palaestra.evaluation.audits.judges.members import accuracy, agreement, error_correlation, parse_failures
from palaestra.evaluation.audits.judges.nuisance import nuisance_slope
from palaestra.evaluation.audits.judges.position import order_calibration, position_bias, position_bias_test
from palaestra.evaluation.audits.judges.reward import injection, overoptimisation, reward_spread, tie_rules

__all__ = [
    "WORDS",
    "accuracy",
    "agreement",
    "audit_judge",
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
    "tie_rules",
]

WORDS: dict[str, str] = {"pass": "trust", "warn": "look at it", "fail": "do not trust", "cannot tell": "cannot tell"}
"""What a verdict means for whoever wants to use the scorer."""
KINDS = {
    "verdicts": ("item", "value"),
    "scores": ("group", "score", "correct"),
    "curve": ("step", "reward"),
}
"""What an audit reads, by the columns that it must have."""


def kind_of(rows: pl.DataFrame) -> str:
    """`verdicts`, `scores` or `curve`, by the columns.

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
    """Every audit that the table has columns for: of verdicts, of scores of a benchmark, or of a training curve.

    truth: the column with the right value. nuisances: columns that a score should not follow; `length` is made from
    `response` where it is missing. match: what makes two rows alike in content [default: `content`, else `group` and
    the truth]. An audit that cannot run says why.

    Raises:
        InputError: an empty table, or one of no known kind.
    """
    if not len(rows):
        raise InputError("audit-judge: the table is empty")
    kind = kind_of(rows)
    if "length" not in rows.columns and "response" in rows.columns and rows["response"].dtype == pl.String:
        rows = rows.with_columns(length=pl.col("response").str.len_chars())
    chosen: list[tuple[str, Callable[[], Finding]]] = []
    score, label = {"verdicts": ("value", truth), "scores": ("score", "correct"), "curve": ("reward", truth)}[kind]
    clean = rows.filter(~pl.col("injected").cast(pl.Boolean).fill_null(False)) if "injected" in rows.columns else rows
    if kind == "verdicts":
        chosen.append(("parsing", partial(parse_failures, clean)))
        if "order" in rows.columns and rows["order"].is_not_null().any():
            chosen += [("position", partial(position_bias, clean)), ("order", partial(order_calibration, clean))]
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
    same = list(match) or (
        ["content"] if "content" in rows.columns else [n for n in ("group", label) if n in rows.columns]
    )
    for name in nuisances:
        if same and name in rows.columns and kind != "curve":
            chosen.append((name, partial(nuisance_slope, clean, nuisance=name, score=score, match=same)))
        elif name != "length":
            chosen.append((name, partial(nuisance_slope, clean, nuisance=name, score=score, match=same or "content")))
    return [_answer(name, run) for name, run in chosen]


def _answer(name: str, run: Callable[[], Finding]) -> Finding:
    try:
        return run()
    except PalaestraError as error:
        return Finding(name, "cannot tell", str(error))
