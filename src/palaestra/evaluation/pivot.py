"""Matrices with margins: success or score by two keys, each cell with its n and interval, the margins computed anew.

Left out: pictures (the report draws) and more than two keys (filter first).
"""

from __future__ import annotations

from typing import Any

import polars as pl

from palaestra.errors import MissingColumnError, nearest
from palaestra.evaluation.intervals import mean_interval, success_interval

ALL = "all"


def matrix_table(
    trials: pl.DataFrame, *, rows: str, columns: str, value: str = "success", level: float = 0.95
) -> pl.DataFrame:
    """Mean of `value` by keys `rows` and `columns` as a long table: `row, column, mean, low, high, n, tasks`.

    Margins are named "all".

    value: "success" gets Wilson's interval, anything else Student's t, both clustered by task and run. A margin is the
    mean over its *tasks*, not over its cells: cells with more tasks weigh more. Cells that nobody tried are not there.

    Raises:
        MissingColumnError: a key is missing.
    """
    for name in (rows, columns, value):
        if name not in trials.columns:
            raise MissingColumnError(f"matrix_table: trials have no column {name!r}{nearest(name, trials.columns)}")
    keyed = trials.with_columns(row=pl.col(rows).cast(pl.String), column=pl.col(columns).cast(pl.String))
    keyed = keyed.drop_nulls(["row", "column"])
    everywhere = pl.lit(ALL)
    parts = [
        keyed,
        keyed.with_columns(column=everywhere),
        keyed.with_columns(row=everywhere),
        keyed.with_columns(row=everywhere, column=everywhere),
    ]
    found = []
    for part in parts:
        for (row, column), cell in part.sort("row", "column").group_by("row", "column", maintain_order=True):
            interval = success_interval if value == "success" else mean_interval
            e = interval(cell, value=value, level=level)
            found.append((row, column, e.mean, e.low, e.high, e.n, e.clusters))
    schema: dict[str, Any] = {
        "row": pl.String,
        "column": pl.String,
        "mean": pl.Float64,
        "low": pl.Float64,
        "high": pl.Float64,
    }
    schema |= {"n": pl.Int64, "tasks": pl.Int64}
    table = pl.DataFrame(found, schema=schema, orient="row")
    return table.with_columns(pl.col("mean", "low", "high").fill_nan(None))


def wide(table: pl.DataFrame, what: str = "mean") -> pl.DataFrame:
    """Pivots a `matrix_table` to a wide table of its mean, low, high or n: a row per `row`, a column per `column`."""
    order = [*sorted(set(table["column"]) - {ALL}), ALL]
    matrix = table.pivot("column", index="row", values=what)
    ranked = matrix.with_columns(_last=pl.col("row") == ALL).sort("_last", "row")
    return ranked.select("row", *[name for name in order if name in matrix.columns])
