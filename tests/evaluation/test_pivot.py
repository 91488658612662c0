from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from tests.evaluation.conftest import Maker

from palaestra.errors import MissingColumnError
from palaestra.evaluation import matrix_table, success_interval, wide


def test_cells_and_margins_have_counts_and_intervals(make_trials: Maker) -> None:
    rng = np.random.default_rng(0)
    frame = make_trials({"a": rng.random((12, 3)) < 0.5, "b": rng.random((12, 3)) < 0.7})
    frame = frame.with_columns(
        level=pl.when(pl.col("task").str.ends_with("1")).then(pl.lit("hard")).otherwise(pl.lit("easy"))
    )
    table = matrix_table(frame, rows="system", columns="level")
    assert len(table) == 9
    cell = table.filter(row="a", column="easy").to_dicts()[0]
    alone = success_interval(frame.filter(pl.col("system") == "a", pl.col("level") == "easy"))
    assert (cell["mean"], cell["low"], cell["high"], cell["n"]) == (alone.mean, alone.low, alone.high, 30)
    margin = table.filter(row="a", column="all").to_dicts()[0]
    assert margin["mean"] == pytest.approx(frame.filter(pl.col("system") == "a")["success"].mean())
    assert margin["tasks"] == 12
    shown = wide(table)
    assert shown.columns == ["row", "easy", "hard", "all"]
    assert shown["row"].to_list() == ["a", "b", "all"]
    assert wide(table, "n")["all"].to_list() == [36, 36, 72]


def test_a_cell_that_nobody_tried_is_not_there(make_trials: Maker) -> None:
    frame = make_trials({"a": np.ones((2, 1), bool), "b": np.ones((1, 1), bool)})
    table = matrix_table(frame, rows="system", columns="task")
    assert table.filter(row="b", column="task-1").is_empty()
    assert wide(table)["task-1"].to_list() == [1.0, None, 1.0]
    with pytest.raises(MissingColumnError, match="did you mean 'system'"):
        matrix_table(frame, rows="sytem", columns="task")
