"""Lifelong evaluation: how a learner's scores on several tasks move from one stage of training to the next.

The numbers are those that a survey of self-evolving agents [6] (arXiv 2507.21046) asks for. Backward transfer is that
of Lopez-Paz and Ranzato (arXiv 1706.08840); the slope, the efficiency and the drift are this package's reading of the
survey's words, which give no formula.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.errors import InputError, need_columns
from palaestra.evaluation.analyses import ANALYSES, Analysis, table

NEEDED = ("stage", "task", "score", "trained")


def slope(scores: np.ndarray | list[float], at: np.ndarray | list[int] | None = None) -> float:
    """Least-squares slope of a curve over its steps `at`, by default 0, 1, 2 …; NaN with fewer than two points.

    >>> slope([0.2, 0.4, 0.6]), slope([0.5, 0.5])
    (0.2, 0.0)
    """
    values = np.asarray(scores, float)
    if len(values) < 2:
        return float("nan")
    steps = np.arange(len(values)) if at is None else np.asarray(at)
    steps = steps - steps.mean()
    return round(float(steps @ (values - values.mean()) / (steps @ steps)), 12)


def lifelong(rows: pl.DataFrame) -> pl.DataFrame:
    """Table of lifelong-learning measures (forgetting, transfer …): a row per task, then one of all, `task` null.

    Args:
        rows: score of each task after each stage of training (`stage`, an integer), and `trained`, the stage in which
            the task was trained, null for one that never was; also `cost` (spent in the stage) and `violations`
            (share of episodes), if they are known. Several rows of a stage and task are averaged;
            stages without a score of a task are none of it.

    Returns:
        first and last: scores of the first and the last stage. adaptivity: slope of the score by stage. retention:
        backward transfer, last score less that after the task's own stage; null for a task of the last stage and for
        one that was not trained. generalisation: last less first score of a task that was not trained. efficiency:
        last less first score per cost of all stages. drift: last less first share of violations. In the last row,
        means over the tasks that have the number.
    """
    need_columns("lifelong", rows.columns, NEEDED)
    if rows.is_empty():
        raise InputError("lifelong: no rows")
    extra = [name for name in ("violations",) if name in rows.columns]
    cost = None
    if "cost" in rows.columns:
        cost = float(rows.group_by("stage").agg(pl.col("cost").mean())["cost"].sum())
    known = pl.col("score").cast(pl.Float64).fill_nan(None).mean()
    means = rows.group_by("task", "stage").agg(known, pl.col("trained").first(), *map(_mean, extra))
    means = means.drop_nulls("score")
    if means.is_empty():
        raise InputError("lifelong: no row has a score")
    last_stage = int(rows["stage"].to_numpy().max())
    found = [
        _of_task(task, own.sort("stage"), last_stage, cost)
        for (task,), own in means.sort("task").group_by("task", maintain_order=True)
    ]
    schema = dict.fromkeys(
        ("first", "last", "adaptivity", "retention", "generalisation", "efficiency", "drift"), pl.Float64
    )
    each = pl.DataFrame(found, schema_overrides=schema)
    return pl.concat([each, each.select(pl.lit(None, each.schema["task"]).alias("task"), pl.col(*schema).mean())])


def _mean(name: str) -> pl.Expr:
    return pl.col(name).mean()


def _of_task(task: object, own: pl.DataFrame, last_stage: int, cost: float | None) -> dict[str, object]:
    scores, trained = own["score"].to_list(), own["trained"][0]
    after = None if trained is None else own.filter(pl.col("stage") == trained)["score"]
    kept = None if after is None or after.is_empty() or trained == last_stage else scores[-1] - after[0]
    gain = scores[-1] - scores[0]
    broken: list[Any] = own["violations"].to_list() if "violations" in own.columns else [None]
    return {
        "task": task,
        "first": scores[0],
        "last": scores[-1],
        "adaptivity": slope(scores, own["stage"].to_list()),
        "retention": kept,
        "generalisation": gain if trained is None else None,
        "efficiency": gain / cost if cost else None,
        "drift": None if None in broken else broken[-1] - broken[0],
    }


@ANALYSES.register("lifelong")
def of_scores() -> Analysis:
    """Returns a function (SCORES file) -> table per task, then of all: adaptivity, retention … over stages of training.

    Columns of SCORES: stage, task, score, trained; cost if known.
    """
    return lambda scores: lifelong(table(Path(scores), *NEEDED))
