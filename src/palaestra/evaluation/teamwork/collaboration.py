"""Collaboration gap ([60], arXiv 2511.02687): the same tasks alone with all, or the parts, and jointly.

Left out: grading of transcripts; `success` is a column.
"""

from __future__ import annotations

import polars as pl

from palaestra.errors import InputError, nearest, need_columns

CONDITIONS = ("solo", "solo_halves", "joint")


def collaboration_gap(
    frame: pl.DataFrame, *, by: str = "pair", task: str = "task", condition: str = "condition", score: str = "success"
) -> pl.DataFrame:
    """Table per pair of runs by `condition`: success alone, alone on split information, together, and their gaps.

    Columns: solo, solo_halves, joint, gap, gap_stderr, integration, collaboration, tasks.

    gap = solo - joint, over tasks that both have; integration = solo - solo_halves is what putting the parts together
    costs one agent, collaboration = solo_halves - joint what is lost between two. Without runs of solo_halves the last
    two are null. A pair in two orders is two values of `by`.

    Raises:
        MissingColumnError, InputError: a column is missing, a condition is unknown, or solo or joint is.
    """
    need_columns("collaboration_gap", frame.columns, (by, task, condition, score))
    known = frame[condition].cast(pl.String).unique().to_list()
    for each in known:
        if each not in CONDITIONS:
            raise InputError(f"collaboration_gap: {condition}={each!r}{nearest(str(each), CONDITIONS)}")
    for each in ("solo", "joint"):
        if each not in known:
            raise InputError(f"collaboration_gap: no run has {condition}={each!r}, so there is nothing to compare")
    wide = frame.with_columns(pl.col(score).cast(pl.Float64).fill_nan(None)).pivot(
        on=condition, index=[by, task], values=score, aggregate_function="mean"
    )
    if "solo_halves" not in wide.columns:
        wide = wide.with_columns(solo_halves=pl.lit(None, pl.Float64))
    gap = pl.col("solo") - pl.col("joint")
    return wide.group_by(by, maintain_order=True).agg(
        pl.col(*CONDITIONS).mean(),
        gap=gap.mean(),
        gap_stderr=gap.std() / gap.count().sqrt(),
        integration=(pl.col("solo") - pl.col("solo_halves")).mean(),
        collaboration=(pl.col("solo_halves") - pl.col("joint")).mean(),
        tasks=gap.count(),
    )


def order_effect(
    frame: pl.DataFrame, *, by: str = "pair", task: str = "task", order: str = "order", score: str = "success"
) -> pl.DataFrame:
    """Table per unequal pair of runs by `order`, who begins: success strong_first, weak_first, effect, tasks.

    effect = success if the stronger begins - success if the weaker does, over tasks that both orders have.

    Raises:
        MissingColumnError, InputError: a column is missing, or `order` has other values than strong_first, weak_first.
    """
    need_columns("order_effect", frame.columns, (by, task, order, score))
    orders = ("strong_first", "weak_first")
    for each in frame[order].cast(pl.String).unique().to_list():
        if each not in orders:
            raise InputError(f"order_effect: {order}={each!r}{nearest(str(each), orders)}")
    known = frame.with_columns(pl.col(score).cast(pl.Float64).fill_nan(None))
    wide = known.pivot(on=order, index=[by, task], values=score, aggregate_function="mean")
    wide = wide.with_columns(pl.lit(None, pl.Float64).alias(each) for each in orders if each not in wide.columns)
    effect = pl.col("strong_first") - pl.col("weak_first")
    return wide.group_by(by, maintain_order=True).agg(
        pl.col(*orders).mean(),
        effect=effect.mean(),
        effect_stderr=effect.std() / effect.count().sqrt(),
        tasks=effect.count(),
    )
