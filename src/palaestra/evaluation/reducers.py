"""Reducers over k trials of a task: pass@k, pass^k, best of k, and the spread of whole runs.

Each reducer gives a table with a row per cell (run, task) and turns into an estimate that is clustered by task and run.
`pass_at_k` and `pass_hat_k`, elementwise on counts, are in `intervals`. Left out: majority votes (they need answers).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
import scipy

from palaestra.errors import InputError, MissingColumnError, nearest
from palaestra.evaluation.intervals import (
    Estimate,
    choose_ratio,
    families,
    matrix,
    mean_of_cells,
    pass_at_k,
    pass_hat_k,
    share_of_cells,
)

Reducer = Literal["pass_at_k", "pass_hat_k", "all_k", "best_of"]
_CELL = ["run", "task"]


def per_task(
    trials: pl.DataFrame,
    reducer: Reducer,
    k: int,
    *,
    value: str | None = None,
    select: str | None = None,
    missing: bool | None = False,
) -> pl.DataFrame:
    """Table `run, task, n, c, value`: trials of each (run, task) by a named `reducer` of k trials, such as "pass_at_k".

    pass_at_k, pass_hat_k: chance that any, that all of k trials succeed, unbiased; null where there are fewer than k.
    all_k: whether the first k trials all succeeded (Pass^3 of leaderboards, arXiv 2604.06132). missing: what a trial
        that is not there or has no verdict counts as; None: then the cell is null.
    best_of: expected `value` (default "score") of the trial with the largest `select` among k drawn without
        replacement; ties share. select: default `value` itself, the optimist's maximum; a column with the score on
        development tasks gives what such a choice really yields.

    n: trials with a value. c: their sum.

    Raises:
        InputError: k is not positive, or there is no such reducer.
        MissingColumnError: a column is missing.

    >>> frame = pl.DataFrame({"run": "0", "task": "a", "trial": [0, 1, 2], "success": [True, True, False]})
    >>> [per_task(frame, name, 2)["value"].item().__round__(4) for name in ("pass_at_k", "pass_hat_k", "all_k")]
    [1.0, 0.3333, 1.0]
    """
    value = value or ("score" if reducer == "best_of" else "success")
    for column in (*_CELL, "trial", value, *([select] if select else [])):
        if column not in trials.columns:
            raise MissingColumnError(f"{reducer}: trials have no column {column!r}{nearest(column, trials.columns)}")
    if k < 1:
        raise InputError(f"{reducer}: k={k}, but it takes at least one trial")
    x = pl.col(value).cast(pl.Float64).fill_nan(None)
    if reducer == "best_of":
        by = pl.col(select or value).cast(pl.Float64).fill_nan(None)
        return _best_of(trials.with_columns(x, by.alias("_by")), k, value)
    counts = trials.group_by(_CELL).agg(
        n=x.count().cast(pl.Int64),
        c=x.sum().cast(pl.Int64),
        first=x.sort_by("trial").head(k),
    )
    counts = counts.sort(_CELL)
    if reducer == "all_k":
        scored, won = pl.col("first").list.drop_nulls().list.len(), pl.col("first").list.sum()
        absent = pl.lit(None, pl.Boolean) if missing is None else (won == scored) & missing
        known = pl.when(scored == k).then(won == k).otherwise(absent)
        return counts.select(*_CELL, "n", "c", value=known.cast(pl.Float64))
    if reducer not in ("pass_at_k", "pass_hat_k"):
        known_names = ("pass_at_k", "pass_hat_k", "all_k", "best_of")
        raise InputError(f"per_task: reducer={reducer!r}{nearest(str(reducer), known_names)}")
    reduced = (pass_at_k if reducer == "pass_at_k" else pass_hat_k)(counts["n"], counts["c"], k)
    return counts.select(*_CELL, "n", "c", value=pl.Series(reduced, dtype=pl.Float64).fill_nan(None))


def _best_of(trials: pl.DataFrame, k: int, value: str) -> pl.DataFrame:
    """Σ_i w_i x_(i), w_i = [C(i, k) - C(i-1, k)] / C(n, k), in the order of `_by`; tied trials share their weight."""
    rows = trials.drop_nulls([value, "_by"]).sort(*_CELL, "_by")
    rows = rows.with_columns(n=pl.len().over(_CELL), i=pl.int_range(1, pl.len() + 1).over(_CELL))
    n, i = rows["n"].to_numpy(), rows["i"].to_numpy()
    weight = choose_ratio(i, n, np.full(len(n), k)) - choose_ratio(i - 1, n, np.full(len(n), k))
    rows = rows.with_columns(weight=pl.Series(weight, dtype=pl.Float64))
    rows = rows.with_columns(weight=pl.col("weight").mean().over(*_CELL, "_by"))
    table = rows.group_by(_CELL).agg(
        n=pl.len().cast(pl.Int64), c=pl.col(value).sum(), value=(pl.col(value) * pl.col("weight")).sum()
    )
    return table.with_columns(value=pl.when(pl.col("n") >= k).then("value")).sort(_CELL)


def k_estimate(
    trials: pl.DataFrame,
    reducer: Reducer,
    k: int,
    *,
    value: str | None = None,
    select: str | None = None,
    missing: bool | None = False,
    level: float = 0.95,
) -> Estimate:
    """`Estimate` of a `reducer` (pass_at_k …) of k trials from a table of trials: mean over cells (run, task).

    The cells are those of `per_task`.

    Wilson's interval as in `success_interval`, but Student's t for "best_of", which is no share.

    Simulated (4 trials, k = 3): covers 94-96 %, also where t would cover 93 %; but where nearly all tasks give 1 there
    is little to see: with a truth of .9, 88 % at 30 tasks, 92.5 % at 40 and 94 % at 100 (t: 88, 91, 93).
    """
    table = per_task(trials, reducer, k, value=value, select=select, missing=missing).drop_nulls("value")
    if "cluster" in trials.columns:
        table = table.join(trials.select("task", "cluster").unique("task"), on="task", maintain_order="left")
    interval = mean_of_cells if reducer == "best_of" else share_of_cells
    return interval(matrix(table, "value"), n=int(table["n"].sum()), groups=families(table), level=level)


@dataclass(frozen=True)
class RunSpread:
    """Result of `run_spread`: mean of whole runs' scores, sd with interval, range, and sd predicted from tasks.

    mean: over runs. sd: ddof 1, with its chi-square interval low, high. range: largest minus smallest. runs, tasks: how
    many. predicted: √(Σ_t p_t (1-p_t)) / T, what the success rates of the tasks say that sd is; NaN below two trials.
    """

    mean: float
    sd: float
    low: float
    high: float
    range: float
    predicted: float
    runs: int
    tasks: int


def run_spread(trials: pl.DataFrame, *, value: str = "success", level: float = 0.95) -> RunSpread:
    """`RunSpread` of one system's table of trials: spread of whole runs' scores over the same tasks (arXiv 2602.07150).

    Never report one run alone.

    A run is one (run, trial): its score is the mean over its tasks. Only runs that have every task count. p(1-p) is
    estimated without bias: n/(n-1) times the plug-in. The interval holds for scores that are about normal, which means
    over tens of tasks are.
    """
    scored = trials.select("run", "trial", "task", x=pl.col(value).cast(pl.Float64).fill_nan(None)).drop_nulls()
    tasks = scored["task"].n_unique()
    runs = scored.group_by("run", "trial").agg(mean=pl.col("x").mean(), n=pl.len()).filter(pl.col("n") == tasks)
    scores = runs["mean"].to_numpy()
    cells = scored.group_by("task").agg(v=pl.col("x").var(ddof=1))
    variance = cells["v"].drop_nulls()
    predicted = math.sqrt(variance.sum()) / tasks if len(variance) == tasks and tasks else math.nan
    if len(scores) < 2:
        mean = float(scores.mean()) if len(scores) else math.nan
        return RunSpread(mean, math.nan, math.nan, math.nan, math.nan, predicted, len(scores), tasks)
    sd, freedom = float(scores.std(ddof=1)), len(scores) - 1
    quantiles = (2 * scipy.special.gammaincinv(freedom / 2, q) for q in ((1 + level) / 2, (1 - level) / 2))  # of chi²
    low, high = (sd * math.sqrt(freedom / each) for each in quantiles)
    spread = float(scores.max() - scores.min())
    return RunSpread(float(scores.mean()), sd, low, high, spread, predicted, len(scores), tasks)
