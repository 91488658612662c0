"""`palaestra evaluate PATH…`: two logs, two systems, one sentence; what was not read is said on stderr."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from palaestra.interface import cli


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["evaluate", *map(str, arguments)])
    said = capsys.readouterr()
    return int(stopped.value.code or 0), said.out, said.err


def log(path: Path, rate: float, *, damaged: bool = False) -> Path:
    """40 tasks with two trials each, success by rate; the same tasks in every file."""
    rows = [
        {"messages": [{"role": "user", "content": f"task {n}"}, {"role": "assistant", "content": "x"}], "model": "m",
         "task": f"t{n}", "reward": int((n * 7 + trial) % 10 < 10 * rate), "scores": {"style": n % 3}}
        for n in range(40) for trial in range(2)
    ]  # fmt: skip
    lines = [json.dumps(row) for row in rows]
    path.write_text("\n".join([*lines[:-1], lines[-1][:20] if damaged else lines[-1]]) + "\n")
    return path


def test_two_logs_are_two_systems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = log(tmp_path / "old.jsonl", 0.3), log(tmp_path / "new.jsonl", 0.8)
    code, out, err = run(capsys, f"old={old}", f"new={new}", "--baseline", "old", "--json")
    rows = {row["system"]: row for row in json.loads(out)}
    assert (code, err) == (0, "")
    assert rows["old"]["success"]["mean"] == 0.3
    assert rows["new"]["difference"]["mean"] == pytest.approx(0.5)
    assert rows["new"]["verdict"].startswith("better by +50.0 points")
    code, out, _ = run(capsys, old, new)
    assert code == 0
    assert "m (old): the baseline" in out
    code, out, _ = run(capsys, old, "--score", "style", "--json")
    assert json.loads(out)[0]["score"]["mean"] == pytest.approx(sum(n % 3 for n in range(40)) / 40)
    assert run(capsys, old, "--baseline", "odl")[0] == 2


def test_what_is_not_read_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(tmp_path / "half.jsonl", 0.5, damaged=True)
    code, out, err = run(capsys, path, "--json")
    assert code == 0
    assert json.loads(out)[0]["episodes"] == 79
    assert err.startswith(f"not read: {path}, line 80: not JSON (")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and no more")
    code, out, err = run(capsys, path, tmp_path / "broken.parquet")
    assert (code, out) == (2, "")
    assert "broken.parquet: not a readable Parquet file" in err
    assert run(capsys, tmp_path / "nope.jsonl")[0] == 2
    assert run(capsys, path, "--format", "verl")[0] == 2


def test_whose_play_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    games = pl.DataFrame({
        "task": ["a", "a", "b", "b"], "group": [0, 0, 1, 1], "episode": 0, "turn": [0, 1, 0, 1],
        "agent": ["first", "second"] * 2, "reward": [1.0, -1.0, 1.0, -1.0],
    })  # fmt: skip
    games.write_parquet(tmp_path / "games.parquet")
    code, out, err = run(capsys, tmp_path / "games.parquet", "--json")
    assert json.loads(out)[0]["score"]["mean"] == 0
    assert "zero-sum games: say whose counts with --agent" in err
    code, out, err = run(capsys, tmp_path / "games.parquet", "--agent", "first", "--json")
    assert (json.loads(out)[0]["score"]["mean"], err) == (1.0, "")
    code, _, err = run(capsys, tmp_path / "games.parquet", "--agent", "frist")
    assert code == 2
    assert "nobody of that name; did you mean 'first'" in " ".join(err.split())


def test_nothing_measured_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plain.csv").write_text("task,points\na,1\nb,2\n")
    assert "nothing was measured" in run(capsys, tmp_path / "plain.csv")[2]
    code, out, err = run(capsys, tmp_path / "plain.csv", "--score", "points", "--json")
    assert (code, err, json.loads(out)[0]["score"]["mean"]) == (0, "", 1.5)
