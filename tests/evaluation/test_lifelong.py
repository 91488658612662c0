"""Numbers of lifelong evaluation."""

from __future__ import annotations

import math
from pathlib import Path

import polars as pl
import pytest

from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.lifelong import lifelong, slope

ROWS = pl.DataFrame({
    "stage": [0, 1, 0, 1], "task": ["a", "a", "b", "b"], "score": [0.9, 0.4, 0.2, 0.8], "trained": [0, 0, 1, 1],
})  # fmt: skip


def test_slope() -> None:
    assert slope([0.1, 0.2, 0.6]) == pytest.approx(0.25)
    assert math.isnan(slope([0.5]))


def test_a_task_of_the_last_stage_has_nothing_to_keep() -> None:
    a, b, whole = lifelong(ROWS).to_dicts()
    assert a["retention"] == pytest.approx(-0.5)
    assert b["retention"] is None
    assert whole["retention"] == pytest.approx(-0.5)
    assert (a["efficiency"], a["drift"], a["generalisation"]) == (None, None, None)


def test_a_slope_is_by_stage_and_a_missing_score_is_no_stage() -> None:
    gaps = ROWS.with_columns(stage=pl.col("stage") * 2)
    assert lifelong(gaps)["adaptivity"].to_list() == pytest.approx([-0.25, 0.3, 0.025])
    unknown = ROWS.clear().vstack(ROWS.with_columns(pl.col("stage") + 2, score=pl.lit(None, pl.Float64)))
    more = pl.concat([ROWS, unknown])
    measures = ["task", "first", "last", "adaptivity"]
    assert lifelong(more).select(measures).equals(lifelong(ROWS).select(measures))
    with pytest.raises(InputError, match="no row has a score"):
        lifelong(unknown)


def test_rows_of_one_cell_are_averaged_and_order_does_not_matter() -> None:
    twice = pl.concat([ROWS, ROWS.with_columns(pl.col("score") + 0.1)]).reverse()
    assert lifelong(twice)["last"].to_list() == pytest.approx([0.45, 0.85, 0.65])


def test_as_an_analysis(tmp_path: Path) -> None:
    ROWS.write_csv(tmp_path / "scores.csv")
    assert analyze("lifelong", tmp_path / "scores.csv").equals(lifelong(ROWS))


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(MissingColumnError, match="trained"):
        lifelong(ROWS.drop("trained"))
    with pytest.raises(InputError, match="no rows"):
        lifelong(ROWS.clear())
