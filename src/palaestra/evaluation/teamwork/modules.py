"""Shapley values of a system's modules, from runs in which some modules are replaced.

All coalitions give Shapley values and interactions ([88], arXiv 2502.00510); only the whole system and it without one
module give that module's win rate ([58], arXiv 2511.03023), which says whether it helps every model or some. What plays
the coalitions of a team is `palaestra.play.coalitions`. Left out: judges that compare, and labels of failures, which
are columns.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from palaestra.credit.teams import EXACT, interactions_of, shapley_of
from palaestra.errors import InputError, need_columns


def module_values(
    frame: pl.DataFrame, *, coalition: str = "coalition", score: str = "success", task: str = "task"
) -> pl.DataFrame:
    """Table per module: Shapley value over all coalitions in runs (coalition, task, success), with standard error.

    Columns: value, stderr, alone, removed, tasks; the values add up to v(all) - v(nobody).

    coalition: the modules that are tested, joined by `+` (empty: none), the others being the default's. value: Shapley
    value of v(S) = mean score over tasks. stderr: of it, over tasks, each with all its coalitions, so that what makes a
    task hard for all of them does not count. alone: v(i) - v(nobody). removed: v(all) - v(all but i). tasks: how many
    have all coalitions; others are left out, as are scores that are missing.

    Raises:
        MissingColumnError: there is no such column. InputError: no task has all coalitions, or there are too many.
    """
    modules, values = coalition_table(frame, coalition=coalition, score=score, task=task)
    each = shapley_of(values)
    mean, places = values.mean(0), 2 ** np.arange(len(modules))
    error = each.std(0, ddof=1) / np.sqrt(len(each)) if len(each) > 1 else np.full(len(modules), np.nan)
    return pl.DataFrame(
        {
            "module": modules,
            "value": each.mean(0),
            "stderr": error,
            "alone": mean[places] - mean[0],
            "removed": mean[-1] - mean[len(mean) - 1 - places],
            "tasks": [len(each)] * len(modules),
        }
    ).with_columns(pl.col("stderr").fill_nan(None))


def module_interactions(
    frame: pl.DataFrame, *, coalition: str = "coalition", score: str = "success", task: str = "task"
) -> pl.DataFrame:
    """Table per pair of modules: interaction in runs as `module_values` reads, with standard error; > 0 is synergy.

    Above 0 two modules add more together than apart.
    """
    modules, values = coalition_table(frame, coalition=coalition, score=score, task=task)
    each = interactions_of(values)
    one, other = np.triu_indices(len(modules), 1)
    error = each.std(0, ddof=1) / np.sqrt(len(each)) if len(each) > 1 else np.full(each.shape[1:], np.nan)
    return pl.DataFrame(
        {
            "one": [modules[at] for at in one],
            "other": [modules[at] for at in other],
            "interaction": each.mean(0)[one, other],
            "stderr": error[one, other],
        }
    ).with_columns(pl.col("stderr").fill_nan(None))


def removals(
    frame: pl.DataFrame,
    *,
    coalition: str = "coalition",
    score: str = "success",
    task: str = "task",
    model: str = "model",
) -> pl.DataFrame:
    """Table per model and module of runs: win rate and loss of the whole against it without the module, failures.

    frame: runs of the whole system and of it without one module, as `module_values` reads them, and the column `model`
    (all one model if there is none). loss: mean score of the whole less that without the module. failures: tasks that
    only the whole solves.

    Raises:
        MissingColumnError: there is no such column. InputError: no run is of the whole system.
    """
    need_columns("removals", frame.columns, (coalition, score, task))
    whose = pl.col(model).cast(pl.String) if model in frame.columns else pl.lit("all")
    names = pl.col(coalition).cast(pl.String).fill_null("").str.split("+").list.eval(pl.element().str.strip_chars())
    runs = (
        frame.select(whose.alias("model"), pl.col(task).alias("_task"), names.list.sort().alias("_in"),
                     pl.col(score).cast(pl.Float64).fill_nan(None).alias("_score"))
        .drop_nulls("_score").group_by("model", "_task", "_in", maintain_order=True).agg(pl.col("_score").mean())
    )  # fmt: skip
    modules = sorted({name for each in runs["_in"].to_list() for name in each if name})
    whole = runs.filter(pl.col("_in").list.len() == len(modules), pl.col("_in").list.first() != "")
    if not len(whole):
        raise InputError(f"column {coalition!r}: no run is of the whole system, {'+'.join(modules)}")
    rows = []
    for module in modules:
        rest = [name for name in modules if name != module] or [""]
        without = runs.filter(pl.col("_in").list.join("+") == "+".join(rest))
        both = whole.join(without, on=["model", "_task"], suffix="_less", maintain_order="left")
        better, worse = pl.col("_score") > pl.col("_score_less"), pl.col("_score") < pl.col("_score_less")
        rows.append(
            both.group_by("model", maintain_order=True).agg(
                pl.lit(module).alias("module"),
                win=(0.5 + 0.5 * better.mean() - 0.5 * worse.mean()),
                loss=(pl.col("_score") - pl.col("_score_less")).mean(),
                failures=better.sum(),
                tasks=better.count(),
            )
        )
    return pl.concat(rows).select("model", "module", "win", "loss", "failures", "tasks")


def module_utility(found: pl.DataFrame, *, spread: float = 0.165) -> pl.DataFrame:
    """Table per module, largest loss first, from `removals`: win rate and its deviation over models, kind.

    found: what `removals` gives. kind: universal if the deviation is below `spread`, else conditional; the paper finds
    .124 in the mean of the one and .205 of the other, the default is between them.
    """
    need_columns("module_utility", found.columns, ("model", "module", "win", "loss"))
    table = found.group_by("module", maintain_order=True).agg(
        pl.col("win").mean(), deviation=pl.col("win").std(), loss=pl.col("loss").mean(), models=pl.len()
    )
    kind = pl.when(pl.col("deviation") < spread).then(pl.lit("universal")).otherwise(pl.lit("conditional"))
    return table.with_columns(kind=pl.when(pl.col("models") > 1).then(kind)).sort("loss", descending=True)


def coalition_table(
    frame: pl.DataFrame, *, coalition: str = "coalition", score: str = "success", task: str = "task"
) -> tuple[list[str], np.ndarray]:
    """(module names, scores float64[tasks, 2^n] of all coalitions) of a table of runs, for `credit.shapley`."""
    need_columns("coalition_table", frame.columns, (coalition, score, task))
    parts = frame.select(
        pl.col(task).alias("_task"),
        pl.col(coalition).cast(pl.String).fill_null("").alias("_in"),
        pl.col(score).cast(pl.Float64).fill_nan(None).alias("_score"),
    ).drop_nulls("_score")
    modules = sorted({name.strip() for text in parts["_in"].unique() for name in text.split("+") if name.strip()})
    if not 1 <= len(modules) <= EXACT:
        raise InputError(f"column {coalition!r} names {len(modules)} modules; 1 to {EXACT} have a table of coalitions")
    bits = {name: 1 << at for at, name in enumerate(modules)}
    place = {
        text: sum({bits[name.strip()] for name in text.split("+") if name.strip()}) for text in parts["_in"].unique()
    }
    size = 2 ** len(modules)
    cells = (
        parts.with_columns(_place=pl.col("_in").replace_strict(place, return_dtype=pl.Int64))
        .group_by("_task", "_place", maintain_order=True)
        .agg(pl.col("_score").mean())
    )
    whole = cells.filter(pl.len().over("_task") == size).sort("_task", "_place")
    if not len(whole):
        missing = sorted(set(range(size)) - set(cells["_place"]))
        lacks = "+".join(name for name in modules if missing and missing[0] & bits[name])
        told = f"{lacks!r} is in none" if missing else "each lacks another one"
        raise InputError(f"column {coalition!r}: no {task} has all {size} coalitions of {modules}; {told}")
    return modules, whole["_score"].to_numpy().reshape(-1, size)
