"""Verdicts of a judge as rows that can be evaluated: one per judged item, with its weighted score.

A file of verdicts has a row per criterion, vote and order. The mean of those rows is not the score of the rubric, for
it knows no weights.
"""

from __future__ import annotations

from collections.abc import Container

import polars as pl

from palaestra.errors import InputError

_MARKS = ("item", "criterion", "value", "ok")
VERDICT = frozenset((*_MARKS, "score"))
"""The columns of a file of verdicts that `per_item` reads."""
_OF_VERDICT = ("criterion", "judge", "sample", "order", "answer", "rationale", "ok", "tokens", "cost")


def has_verdict_columns(columns: Container[str]) -> bool:
    """Whether column names have those of a judge's verdicts: item, criterion, value, ok."""
    return all(name in columns for name in _MARKS)


def per_item(frame: pl.DataFrame) -> pl.DataFrame:
    """A table of a judge's verdicts reduced to one row per item, with its weighted score; any other table unchanged.

    `value`, `score` and `reward` are the item's weighted score, `score.CRITERION` the mean verdict on a criterion. An
    item without a score has the error "judge: no verdict".

    Raises:
        InputError: There are several criteria and no `score`, so that nobody knows their weights.

    Example:
        >>> rows = {"item": [0, 0], "criterion": ["a", "b"], "value": [1.0, 0.0], "score": [9.0, 9.0]}
        >>> per_item(pl.DataFrame(rows).with_columns(ok=True)).select("value", "score.a", "score.b").row(0)
        (9.0, 1.0, 0.0)
    """
    if not has_verdict_columns(frame.columns):
        return frame
    value = pl.when(pl.col("ok").cast(pl.Boolean)).then(pl.col("value").cast(pl.Float64).fill_nan(None))
    names = frame["criterion"].cast(pl.String).unique(maintain_order=True).drop_nulls().to_list()
    if "score" not in frame.columns:
        if len(names) > 1:
            raise InputError(
                f"verdicts on {len(names)} criteria without a column score, their weighted sum; "
                "`palaestra judge` writes it, or keep one criterion"
            )
        frame = frame.with_columns(score=value.mean().over("item"))
    each = [value.filter(pl.col("criterion") == name).mean().alias(f"score.{name}") for name in names]
    kept = [name for name in frame.columns if name not in (*_OF_VERDICT, "item", "value", "score", "reward", "error")]
    score = pl.col("score").cast(pl.Float64).first()
    found = frame.group_by("item", maintain_order=True).agg(pl.col(kept).first(), *each, score=score)
    why = pl.when(pl.col("score").is_null()).then(pl.lit("judge: no verdict"))
    return found.with_columns(value=pl.col("score"), reward=pl.col("score"), error=why)
