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
    assert (code, json.loads(out)[0]["score"]["mean"]) == (0, 1.5)
    assert "nothing was measured" not in err


def test_what_is_skipped_is_in_the_terminal_in_json_and_on_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    log(folder / "half.jsonl", 0.5, damaged=True)
    for name in ("a", "b"):
        (folder / f"{name}.json").write_text('{"notes": 1}')
    (folder / "readme.md").write_text("words")
    code, out, err = run(capsys, folder, "--json")
    (row,) = json.loads(out)
    assert code == 0
    assert [Path(each["file"]).name for each in row["not_read"]] == ["half.jsonl", "logs", "a.json", "b.json"]
    assert "not JSON" in row["not_read"][0]["why"]
    assert f"not read: {folder}: a.json, b.json: no known log: its fields are notes" in err
    assert f"not read: {folder}: files of other kinds are not looked at: 1 × .md" in err
    with pytest.raises(SystemExit):
        cli.main(["triage", str(folder), "--out", str(tmp_path / "out")])
    page = (tmp_path / "out" / "triage.html").read_text()
    assert "What was not read" in page
    assert f"{folder}/b.json: no known log" in page
    assert " m " in capsys.readouterr().out.splitlines()[1], "the table names the system"


def test_a_column_can_name_the_system(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{m},{a},{t},{int(m == 'p')}" for m in "pq" for a in "xy" for t in range(4)]
    (tmp_path / "t.csv").write_text("\n".join(["model,agent,task,success", *rows]))
    code, _, err = run(capsys, tmp_path / "t.csv")
    assert code == 2
    assert "which column names the system?" in err
    code, out, _ = run(capsys, tmp_path / "t.csv", "--system", "model", "--json")
    assert {row["system"]: row["success"]["mean"] for row in json.loads(out)} == {"p": 1.0, "q": 0.0}
    code, out, _ = run(capsys, tmp_path / "t.csv", "--system", "agent,model", "--baseline", "x, p", "--json")
    assert len(json.loads(out)) == 4


def test_huge_numbers_crash_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"s{n % 2},{n // 2},{'-' * (n % 2)}1e308" if n < 4 else f"s{n % 2},{n // 2},{n}" for n in range(12)]
    (tmp_path / "t.csv").write_text("\n".join(["system,task,score", *lines]))
    code, out, err = run(capsys, tmp_path / "t.csv", "--report", tmp_path / "page.html")
    assert code == 0
    assert "s1: " in out
    assert "t.csv, row 1: score: 1e+308 is out of range of a score or a measurement (±1e+100); 4 such rows" in err


@pytest.mark.parametrize("arguments", [["--score", "nope"], ["--agent", "nope"], ["--baseline", "nope"], []])
def test_every_error_names_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    path = tmp_path / "mine.parquet"
    pl.DataFrame(
        {"episode": [0, 1], "success": [True, False], **({"task": ["a", "b"]} if arguments else {})}
    ).write_parquet(path)
    code, _, err = run(capsys, path, *arguments)
    assert code == 2
    assert "mine.parquet" in err


def test_scores_without_success_are_not_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file per episode: those whose score is 1 have success, the others do not."""
    for number, (system, value) in enumerate([("a", 1.0), ("a", 0.2), ("b", 0.0), ("b", 0.9)]):
        row = {"system": system, "task": f"t{number % 2}", "score": value}
        (tmp_path / f"{number}.jsonl").write_text(json.dumps(row))
    _, out, err = run(capsys, tmp_path, "--json")
    assert json.loads(out)[1]["difference"]["mean"] == pytest.approx(-0.15)
    assert "2 of 4 trials have a score but no success: scores are compared" in err
    (tmp_path / "5.csv").write_text("system,task,success\na,t2,1\nb,t2,0\n")
    _, out, err = run(capsys, tmp_path, "--json")
    assert json.loads(out)[1]["difference"]["mean"] == -1
    assert "2 of 6 trials have a score but no success: they do not count in success" in err


@pytest.mark.parametrize(("name", "said"), [("seed", True), ("train_seed", True), ("run", False)])
def test_seeds_that_may_be_runs_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, said: bool
) -> None:
    rows = [f"{seed},t{task},{seed % 2}" for seed in range(3) for task in range(4)]
    (tmp_path / "t.csv").write_text("\n".join([f"{name},task,success", *rows]))
    assert (
        f"column '{name}' has 3 values, which the intervals do not know" in run(capsys, tmp_path / "t.csv")[2]
    ) == said
    each = [f"{n},t{n},1" for n in range(9)]
    (tmp_path / "t.csv").write_text("\n".join([f"{name},task,success", *each]))
    assert run(capsys, tmp_path / "t.csv")[2] == "", "a seed per task is none"


def test_only_errors_are_called_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text("task,success,score,error\na,1,1,\nb,0,,\nc,0,,it fell\n")
    assert "2 of 3 trials have no score, 1 of them failed (an error)" in run(capsys, tmp_path / "t.csv")[2]
    (tmp_path / "t.csv").write_text("task,success,score\na,1,1\nb,0,\n")
    assert run(capsys, tmp_path / "t.csv")[2].startswith("1 of 2 trials have no score: they count")
