"""Whose play it is: two systems are never pooled without a word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from palaestra.errors import InputError
from palaestra.evaluation import trials
from palaestra.evaluation.logs import read_logs


def write(path: Path, table: pl.DataFrame) -> Path:
    how = {".csv": table.write_csv, ".jsonl": table.write_ndjson, ".parquet": table.write_parquet}
    how[path.suffix](path)
    return path


def rates(path: Path, **options: str) -> dict[str, float]:
    table = trials(read_logs(path, **options).turns)
    return dict(table.group_by("system").agg(pl.col("success").mean()).rows())


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize(
    "name", ["system", "model", "Model", "agent", "policy", "run_name", "checkpoint", "Model Name"]
)
def test_two_models_in_one_file_are_two_systems(tmp_path: Path, name: str, suffix: str) -> None:
    table = pl.DataFrame({name: ["x"] * 4 + ["y"] * 4, "task": list("abcd") * 2, "success": [True] * 4 + [False] * 4})
    assert rates(write(tmp_path / f"t{suffix}", table)) == {"x": 1.0, "y": 0.0}


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize(
    "make", [lambda x: {"config": {"model": x, "seed": 1}}, lambda x: {"model": {"name": x, "size": 7}}]
)
def test_what_an_object_within_the_object_says_counts(tmp_path: Path, suffix: str, make: Any) -> None:
    rows = [make(name) | {"task": task, "success": name == "x"} for name in "xy" for task in "abcd"]
    assert rates(write(tmp_path / f"t{suffix}", pl.DataFrame(rows))) == {"x": 1.0, "y": 0.0}


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_two_columns_that_disagree_are_refused(tmp_path: Path, suffix: str) -> None:
    table = pl.DataFrame({
        "model": ["m", "m", "n", "n"], "agent": ["p", "q", "p", "q"], "task": ["t"] * 4,
        "success": [True, True, False, True],
    })  # fmt: skip
    path = write(tmp_path / f"t{suffix}", table)
    with pytest.raises(InputError, match=rf"t\{suffix}: which column names the system\? model \(2 values\), agent \(2"):
        read_logs(path)
    assert rates(path, system="model") == {"m": 1.0, "n": 0.5}
    assert rates(path, system="model,agent") == {"m, p": 1, "m, q": 1, "n, p": 0, "n, q": 1}
    same = table.with_columns(agent=pl.col("model") + "-agent")
    assert set(rates(write(tmp_path / f"same{suffix}", same))) == {"m", "n"}, "one name for each is no disagreement"
    with pytest.raises(InputError, match=rf"t\{suffix}: --system modl: there is no such column; did you mean 'model'"):
        read_logs(path, system="modl")


def test_seats_are_not_systems(tmp_path: Path) -> None:
    seats = pl.DataFrame({
        "task": ["t"] * 4, "episode": [0, 0, 1, 1], "turn": [0, 1] * 2, "agent": ["white", "black"] * 2,
        "policy": ["p", "q"] * 2, "success": [True] * 4,
    })  # fmt: skip
    assert set(rates(write(tmp_path / "seats.csv", seats))) == {"seats"}
    apart = seats.with_columns(policy=pl.Series(["p", "p", "q", "q"]))
    assert set(rates(write(tmp_path / "apart.csv", apart))) == {"p", "q"}


def test_any_field_of_a_log_can_name_the_system(tmp_path: Path) -> None:
    talk = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]
    lines = [{"messages": talk, "task": "t", "reward": n, "model": f"m{n}", "prompt": f"p{1 - n}"} for n in (0, 1)]
    path = tmp_path / "chat.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert rates(path) == {"m0": 0, "m1": 1}
    assert rates(path, system="prompt") == {"p1": 0, "p0": 1}
    assert set(rates(path, system="model,prompt")) == {"m0, p1", "m1, p0"}
