"""What each seat did in an iteration: its mean credit, and the numbers of which descriptors are made."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.errors import LearnerError


def behaviour(
    rows: pl.DataFrame, seats: Sequence[str], columns: Sequence[str], path: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Pair of arrays per seat in table `rows`: mean credit; behaviour (`columns` at episodes' ends; `path`: along one).

    Args:
        rows: group, episode, turn, agent, credit and the columns.
        seats: agents, in the order of the result.
        columns: numbers or lists of numbers.
        path: whether all rows of a seat's first episode count, or only the last one on which each column is there.

    Returns:
        float64[seats], and float64[seats, width], over several episodes the mean; or for a path float64[seats, steps,
        width], of the first episode.

    Raises:
        LearnerError: a seat has no row with one of the columns, or lists differ in length.
    """
    seat = pl.DataFrame({"agent": list(seats), "seat": np.arange(len(seats))})
    table = (
        rows.with_columns(pl.col("agent").cast(pl.String))
        .join(seat, on="agent")
        .sort("seat", "group", "episode", "turn")
    )
    credit = seat.join(table.group_by("seat").agg(pl.col("credit").mean()), on="seat", how="left").sort("seat")
    parts = [_of(table, name, len(seats), path) for name in columns]
    if credit["credit"].null_count():
        missing = credit.filter(pl.col("credit").is_null())["agent"][0]
        raise LearnerError(f"learn.kind diversity: nothing was played by {missing!r}")
    if path:
        return np.array(credit["credit"]), np.concatenate(parts, 2)
    return np.array(credit["credit"]), np.concatenate(parts, 1)


def _of(table: pl.DataFrame, name: str, seats: int, path: bool) -> np.ndarray:
    """A column, float64[seats, width], or float64[seats, steps, width]."""
    keys = ["seat", "group", "episode"]
    there = table.filter(pl.col(name).is_not_null()).select(*keys, value=_listed(table, name))
    if path:
        first = there.group_by("seat").agg(pl.struct("group", "episode").first().alias("one"))
        there = there.join(first, on="seat").filter(pl.struct("group", "episode") == pl.col("one")).sort("seat")
        steps = there.group_by("seat", maintain_order=True).agg("value")
        values = _whole(steps, name, seats, steps["value"].list.len(), there["value"])
        return values.reshape(seats, int(steps["value"].list.len()[0]), -1)
    last = there.group_by(keys, maintain_order=True).agg(pl.col("value").last())
    values = _whole(last, name, seats, last["value"].list.len(), last["value"])
    order = np.unique(last["seat"].to_numpy(), return_inverse=True, return_counts=True)
    sums = np.zeros((seats, values.shape[1]))
    np.add.at(sums, order[1], values)
    return np.asarray(sums / order[2][:, None])


def _listed(table: pl.DataFrame, name: str) -> pl.Expr:
    column = pl.col(name)
    if not isinstance(table.schema[name], pl.List):
        column = pl.concat_list(column.cast(pl.Float64))
    return column.cast(pl.List(pl.Float64))


def _whole(rows: pl.DataFrame, name: str, seats: int, lengths: pl.Series, values: pl.Series) -> np.ndarray:
    """All lists as one array [rows, width]."""
    if rows["seat"].n_unique() < seats or lengths.n_unique() > 1 or values.list.len().n_unique() > 1:
        raise LearnerError(
            f"learn.kind diversity: column {name!r} needs a value of one length in every seat; "
            f"{rows['seat'].n_unique()} of {seats} seats have one"
        )
    width = int(values.list.len()[0])
    return np.array(values.explode().to_numpy(), float).reshape(-1, width)
