"""The gap between one and two."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.teamwork import collaboration_gap, order_effect

DATA = Path(__file__).parents[2] / "atlas" / "data" / "pairs.csv"


def test_what_is_lost_is_split():
    found = {row["pair"]: row for row in analyze("gap", DATA).iter_rows(named=True)}
    row = found["large first"]
    assert (row["gap"], row["integration"], row["collaboration"], row["tasks"]) == (0.5, 0.25, 0.25, 4)
    assert row["gap_stderr"] == pytest.approx(1 / 3**0.5 / 2)
    assert found["small first"]["gap"] - row["gap"] == 0.25  # who begins


def test_a_task_without_a_run_is_left_out_and_nothing_is_made_up():
    frame = pl.read_csv(DATA).filter(pl.col("condition") != "solo_halves")
    assert collaboration_gap(frame)["collaboration"].to_list() == [None] * 3
    some = frame.with_columns(success=pl.when(pl.col("task") == "t3").then(None).otherwise("success"))
    assert collaboration_gap(some)["tasks"].to_list() == [3] * 3
    with pytest.raises(InputError, match="no run has condition='joint'"):
        collaboration_gap(frame.filter(condition="solo"))
    with pytest.raises(InputError, match="did you mean 'joint'"):
        collaboration_gap(frame.with_columns(condition=pl.lit("jointly")))
    with pytest.raises(MissingColumnError, match="pair"):
        collaboration_gap(frame.rename({"pair": "pairs"}))


def test_a_score_that_is_nan_is_a_run_that_is_missing():
    rows = {"pair": ["p"] * 4, "task": ["a", "a", "b", "b"], "condition": ["solo", "joint"] * 2}
    found = collaboration_gap(pl.DataFrame({**rows, "success": [1.0, 0.0, float("nan"), 0.0]})).row(0, named=True)
    assert (found["gap"], found["tasks"]) == (1.0, 1)


def test_who_begins_matters_or_not() -> None:
    rows = [
        ("p", f"{task}", order, task < n) for order, n in (("strong_first", 9), ("weak_first", 5)) for task in range(10)
    ]
    frame = pl.DataFrame(rows, schema=["pair", "task", "order", "success"], orient="row")
    assert order_effect(frame)["effect"].to_list() == pytest.approx([0.4])
    with pytest.raises(InputError, match="strong_first"):
        order_effect(frame.with_columns(order=pl.lit("strong")))
