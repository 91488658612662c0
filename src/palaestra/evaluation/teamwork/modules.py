"""What a module of a system is worth, from runs in which some modules are replaced.

All coalitions give Shapley values and interactions ([88], arXiv 2502.00510); only the whole system and it without one
module give that module's win rate ([58], arXiv 2511.03023), which says whether it helps every model or some. What plays
the coalitions of a team is `palaestra.play.coalitions`. Left out: judges that compare, and labels of failures, which
are columns.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from palaestra.credit.teams import EXACT, interactions_of, shapley_of
from palaestra.errors import InputError, MissingColumnError, nearest


def module_values(
    frame: pl.DataFrame, *, coalition: str = "coalition", score: str = "success", task: str = "task"
) -> pl.DataFrame:
    """A row for each module: value, stderr, alone, removed, tasks; the values add up to v(all) - v(nobody).

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
            "module": modules, "value": each.mean(0), "stderr": error, "alone": mean[places] - mean[0],
            "removed": mean[-1] - mean[len(mean) - 1 - places], "tasks": [len(each)] * len(modules),
        }
    ).with_columns(pl.col("stderr").fill_nan(None))  # fmt: skip


def module_interactions(
    frame: pl.DataFrame, *, coalition: str = "coalition", score: str = "success", task: str = "task"
) -> pl.DataFrame:
    """A row for each pair of modules: one, other, interaction, stderr; above 0 they bring more together."""
    modules, values = coalition_table(frame, coalition=coalition, score=score, task=task)
    each = interactions_of(values)
    one, other = np.triu_indices(len(modules), 1)
    error = each.std(0, ddof=1) / np.sqrt(len(each)) if len(each) > 1 else np.full(each.shape[1:], np.nan)
    return pl.DataFrame(
        {
            "one": [modules[at] for at in one], "other": [modules[at] for at in other],
            "interaction": each.mean(0)[one, other], "stderr": error[one, other],
        }
    ).with_columns(pl.col("stderr").fill_nan(None))  # fmt: skip


def coalition_table(
    frame: pl.DataFrame, *, coalition: str = "coalition", score: str = "success", task: str = "task"
) -> tuple[list[str], np.ndarray]:
    """Modules in the order of their names, and v of each task, float64[tasks, 2^n], as `credit.shapley` reads it."""
    _known(frame, coalition, score, task)
    parts = frame.select(
        pl.col(task).alias("_task"), pl.col(coalition).cast(pl.String).fill_null("").alias("_in"),
        pl.col(score).cast(pl.Float64).alias("_score"),
    ).drop_nulls("_score")  # fmt: skip
    modules = sorted({name.strip() for text in parts["_in"].unique() for name in text.split("+") if name.strip()})
    if not 1 <= len(modules) <= EXACT:
        raise InputError(f"column {coalition!r} names {len(modules)} modules; 1 to {EXACT} have a table of coalitions")
    bits = {name: 1 << at for at, name in enumerate(modules)}
    place = {
        text: sum({bits[name.strip()] for name in text.split("+") if name.strip()}) for text in parts["_in"].unique()
    }
    size = 2 ** len(modules)
    cells = parts.with_columns(_place=pl.col("_in").replace_strict(place, return_dtype=pl.Int64)).group_by(
        "_task", "_place", maintain_order=True
    ).agg(pl.col("_score").mean())  # fmt: skip
    whole = cells.filter(pl.len().over("_task") == size).sort("_task", "_place")
    if not len(whole):
        missing = sorted(set(range(size)) - set(cells["_place"]))
        lacks = "+".join(name for name in modules if missing and missing[0] & bits[name])
        told = f"{lacks!r} is in none" if missing else "each lacks another one"
        raise InputError(f"column {coalition!r}: no {task} has all {size} coalitions of {modules}; {told}")
    return modules, whole["_score"].to_numpy().reshape(-1, size)


def _known(frame: pl.DataFrame, *names: str) -> None:
    for name in names:
        if name not in frame.columns:
            raise MissingColumnError(f"no column {name!r}{nearest(name, frame.columns)}")
