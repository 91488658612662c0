from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from palaestra.errors import InputError, StorageError
from palaestra.interface.report.load import Interval, load_run


def test_reads_everything_that_the_trainer_wrote(run_dir: Path) -> None:
    run = load_run(run_dir)
    assert [seed.name for seed in run.seeds] == ["0", "1", "2"]
    assert run.summary is not None
    assert run.summary["recipe"] == "solver-checker"
    assert run.recipe is not None
    assert run.recipe.startswith("name: solver-checker")
    seed = run.seeds[0]
    assert [row["iteration"] for row in seed.metrics] == list(range(30))
    assert seed.training is not None
    assert seed.training["iteration"].unique().to_list() == [29]
    assert seed.evaluation is not None
    assert "after" in seed.evaluation["system"].to_list()
    assert sum(seed.contributions.values()) == pytest.approx(1)


def test_only_the_newest_turns_are_read(run_dir: Path) -> None:
    folder = run_dir / "seed-0" / "turns"
    frame = pl.read_parquet(folder / "iteration-000029.parquet")
    frame.with_columns(iteration=pl.lit(28, pl.Int32)).write_parquet(folder / "iteration-000028.parquet")
    training = load_run(run_dir).seeds[0].training
    assert training is not None
    assert training["iteration"].unique().to_list() == [29]


def test_credit_per_token_becomes_its_mean(run_dir: Path) -> None:
    path = run_dir / "seed-0" / "turns" / "iteration-000029.parquet"
    frame = pl.read_parquet(path)
    frame.with_columns(advantage=pl.Series([[1.0, 2.0]] * frame.height)).write_parquet(path)
    training = load_run(run_dir).seeds[0].training
    assert training is not None
    assert set(training["advantage"]) == {1.5}


def test_seeds_are_in_numerical_order(tmp_path: Path) -> None:
    for seed in (10, 2, 1):
        (tmp_path / f"seed-{seed}").mkdir()
    assert [seed.name for seed in load_run(tmp_path).seeds] == ["1", "2", "10"]


@pytest.mark.parametrize(
    "name",
    [
        "summary.json",
        "environment.json",
        "recipe.yaml",
        "seed-1/metrics.jsonl",
        "seed-1/contributions.json",
        "seed-1/evaluation.parquet",
        "seed-1/turns/iteration-000029.parquet",
    ],
)
def test_a_damaged_file_is_named(run_dir: Path, name: str) -> None:
    path = run_dir / name
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] + b"\xff\xfe{\n")
    with pytest.raises(StorageError) as caught:
        load_run(run_dir)
    assert str(path) in str(caught.value)


def test_a_damaged_line_of_the_metrics_is_named(run_dir: Path) -> None:
    path = run_dir / "seed-0" / "metrics.jsonl"
    lines = path.read_text().splitlines()
    lines[4] = lines[4][:50]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(StorageError, match="line 5"):
        load_run(run_dir)


def test_a_last_line_that_was_cut_off_is_left_out(run_dir: Path) -> None:
    path = run_dir / "seed-0" / "metrics.jsonl"
    path.write_text(path.read_text()[:-100])
    first, second, _ = load_run(run_dir).seeds
    assert first.torn
    assert len(first.metrics) == 29
    assert not second.torn
    assert len(second.metrics) == 30


def test_of_an_iteration_that_was_logged_twice_the_later_line_counts(tmp_path: Path) -> None:
    rows = [{"iteration": 0, "reward": 1}, {"iteration": 1, "reward": 2}, {"iteration": 1, "reward": 3}]
    (tmp_path / "seed-0").mkdir()
    (tmp_path / "seed-0" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [row["reward"] for row in load_run(tmp_path).seeds[0].metrics] == [1, 3]


def test_a_table_that_is_not_one_of_turns_is_named(run_dir: Path) -> None:
    pl.DataFrame({"x": [1]}).write_parquet(run_dir / "seed-0" / "evaluation.parquet")
    with pytest.raises(StorageError, match=r"evaluation\.parquet.*'group', 'episode'"):
        load_run(run_dir)


def test_what_is_not_a_run_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such run directory"):
        load_run(tmp_path / "absent")
    with pytest.raises(InputError, match="not a run directory"):
        load_run(tmp_path)


def test_interval() -> None:
    assert Interval.read({"mean": 1, "low": 0.5, "high": None}, "x") == Interval(1.0, 0.5, None)
    assert Interval.read(0.25, "x") == Interval(0.25)
    assert Interval.read(None, "x") is None
    assert Interval.read({"mean": float("nan")}, "x") is None
    with pytest.raises(StorageError, match=r"summary\.json: before"):
        Interval.read("high", "summary.json: before")
