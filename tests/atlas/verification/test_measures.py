"""Measures of a use: numbers of what a training left."""

from pathlib import Path

import polars as pl

from palaestra_atlas.verification.measures import Left, measure


def left(folder: Path, rows: dict[str, list[object]]) -> Left:
    """What a training of one seed leaves, with this held-out play."""
    (folder / "run" / "seed-1").mkdir(parents=True)
    frame = pl.DataFrame(rows).with_columns(system=pl.lit("after"))
    frame.write_parquet(folder / "run" / "seed-1" / "evaluation.parquet")
    return Left(folder, 0, "")


def test_groups_of_one_task_count_each(tmp_path: Path) -> None:
    """Episodes are numbered anew in each group: four of one task, three of them solved, are .75, not the last two."""
    rows = {
        "task": ["kind 0"] * 5,
        "group": [0, 0, 1, 1, 1],
        "episode": [0, 1, 0, 1, 1],
        "success": [True, True, True, True, False],
    }
    assert measure("success()")(left(tmp_path, rows)) == [0.75]


def test_trials_of_one_task_count_each(tmp_path: Path) -> None:
    """With trials numbered, the last turn of each decides."""
    rows = {"task": ["a"] * 3, "trial": [0, 0, 1], "episode": [0, 0, 0], "success": [False, True, False]}
    assert measure("success()")(left(tmp_path, rows)) == [0.5]
