"""Suites of parametrised tasks: seeds by name, means by template, and how much parameters alone move success.

AndroidWorld (google-research/android_world). `palaestra.envs.worlds.templates` has the templates themselves.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import polars as pl

from palaestra.errors import MissingColumnError, nearest


def seed_of(seed: int, name: str, instance: int) -> int:
    """Random seed of a task template's instance: sha256(f"{seed}_{name}_{instance}") mod 2³².

    >>> seed_of(30, "ContactsAdd", 0)
    1661844299
    """
    return int(hashlib.sha256(f"{seed}_{name}_{instance}".encode()).hexdigest(), 16) % 2**32


def macro_mean(trials: pl.DataFrame, template: str = "template", value: str = "success") -> float:
    """Macro-average of a table of trials, as float: mean per template, then over templates; nulls are dropped.

    >>> macro_mean(pl.DataFrame({"template": ["a", "a", "a", "b"], "success": [1.0, 1.0, 1.0, 0.0]}))
    0.5
    """
    _need(trials, template, value)
    means = trials.group_by(template).agg(pl.col(value).cast(pl.Float64).mean()).drop_nulls(value)
    return _number(means[value].mean())


def seed_variance(trials: pl.DataFrame, task: str = "task", value: str = "success") -> tuple[float, float]:
    """Variance components of success in a table of trials: (between tasks, within repeated trials of a task).

    task: one per template and parameters, with several trials each. within is the mean variance (ddof 1) of the trials
    of a task; between the variance of the tasks' means less the share of it that `within` explains, at least 0.

    >>> seed_variance(pl.DataFrame({"task": ["a", "a", "b", "b"], "success": [1.0, 1.0, 0.0, 0.0]}))
    (0.5, 0.0)

    NaN is what cannot be told: within without a repeated task, between with fewer than two of them.
    """
    _need(trials, task, value)
    x = pl.col(value).cast(pl.Float64)
    tasks = trials.drop_nulls(value).group_by(task).agg(mean=x.mean(), var=x.var(), n=pl.len()).filter(pl.col("n") > 1)
    within = _number(tasks["var"].mean())
    between = _number(tasks["mean"].var()) - _number((tasks["var"] / tasks["n"]).mean())
    return (between if between > 0 or np.isnan(between) else 0.0), within


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _need(trials: pl.DataFrame, *columns: str) -> None:
    for column in columns:
        if column not in trials.columns:
            raise MissingColumnError(f"the trials have no column {column!r}{nearest(column, trials.columns)}")
