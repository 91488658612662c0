"""The registry of formats, the limits, and the list of what was not read."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from palaestra.errors import InputError
from palaestra.evaluation import trials
from palaestra.evaluation.logs import READERS, LogReader, detect, files, read_logs
from palaestra.evaluation.logs.readers import in_order
from palaestra.evaluation.logs.rows import Rows


@pytest.fixture
def mine() -> Iterator[None]:
    def read(found: Any, rows: Rows) -> None:
        for where, record in found:
            rows.episode(where, task=record["my_task"], score=record["points"])

    def make() -> LogReader:
        """What my tool writes."""
        return LogReader(read, fits=lambda record: "my_task" in record)

    READERS.add("mine", make)
    yield
    READERS._made.pop("mine")


def test_a_reader_is_one_registration(tmp_path: Path, mine: None) -> None:
    path = tmp_path / "log.json"
    path.write_text('{"my_task": "a", "points": 0.5, "messages": []}')
    assert trials(read_logs(path).turns).select("task", "score").rows() == [("a", 0.5)], "asked before chat messages"
    assert READERS.doc("mine") == "What my tool writes."
    with pytest.raises(InputError, match="one of the two"):
        LogReader(lambda found, rows: None)


def test_the_order_is_that_of_names_and_what_asks_for_little_comes_last(mine: None) -> None:
    names = [name for name, _ in in_order()]
    assert names == [*sorted(names[:-4]), "csv", "chat", "messages", "rows"]
    assert set(READERS) == set(names)


def test_everything_that_is_passed_over_is_listed(sample_files: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_text(sample_files["chat"].read_text() + "{half")
    (tmp_path / "notes.json").write_text('{"a": 1, "b": 2}')
    (tmp_path / "readme.md").write_text("words")
    (tmp_path / "plot.png").write_bytes(b"\x89PNG")
    (tmp_path / "empty.jsonl").write_text("")
    logs = read_logs(tmp_path)
    said = sorted(str(problem).removeprefix(f"{tmp_path}").lstrip("/") for problem in logs.not_read("m"))
    assert said[0] == ": files of other kinds are not looked at: 1 × .png, 1 × .md"
    assert said[1:3] == ["empty.jsonl: the file is empty", "notes.json: no known log: its fields are a, b"]
    assert said[3].startswith("run.jsonl, line 4: not JSON")
    assert [source.systems for source in logs.sources] == [("m",)]
    assert logs.not_read("somebody else") == []


def test_a_file_that_is_too_large_or_never_ends_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 1000)
    line = '{"task": "a", "success": true}\n'
    for name, text in (
        ("log.jsonl", line * 99),
        ("log.csv", "task,success\n" + "a,true\n" * 999),
        ("log.json", line * 99),
    ):
        path = tmp_path / name
        path.write_text(text)
        with pytest.raises(InputError, match=rf"{name}: more than 1e\+03 bytes, the most that is read of one file"):
            read_logs(path)
    with pytest.raises(InputError, match=r"/dev/zero: more than"):
        read_logs("/dev/zero")


@pytest.mark.parametrize("value", ["1e308", "-1e308", "1e200", "inf"])
def test_numbers_that_cannot_be_squared_are_named(tmp_path: Path, value: str) -> None:
    (tmp_path / "t.csv").write_text(f"task,score,other\na,{value},1\nb,1,2.5\nc,0,{value}\n")
    (tmp_path / "t.jsonl").write_text(
        f'{{"task": "a", "score": {value.replace("inf", "Infinity")}}}\n{{"task": "b", "score": 1}}\n'
    )
    logs = read_logs(tmp_path / "t.csv")
    assert trials(logs.turns)["score"].to_list() == [None, 1, 0]
    assert trials(logs.turns, score="other")["score"].to_list() == [1, 2.5, None]
    assert [(p.where, p.why.partition(":")[0]) for p in logs.problems] == [("row 1", "score"), ("row 3", "other")]
    lines = read_logs(tmp_path / "t.jsonl")
    assert trials(lines.turns)["score"].to_list() == [None, 1]
    assert lines.problems[0].where == "line 1"


def test_tables_are_separated_by_what_they_are_separated_by(tmp_path: Path) -> None:
    for name, sign in (("t.tsv", "\t"), ("t.csv", ";"), ("u.csv", "|")):
        path = tmp_path / name
        path.write_text(f"task{sign}success{sign}note\na{sign}true{sign}x, y\n")
        assert trials(read_logs(path).turns).select("task", "success").rows() == [("a", True)]


def test_brackets_in_a_path_are_brackets(tmp_path: Path) -> None:
    for folder, task in (("w1", "wrong"), ("w[1]", "right")):
        (tmp_path / folder).mkdir()
        for name, text in (
            ("t.csv", f"task,success\n{task},true\n"),
            ("t.jsonl", json.dumps({"task": task, "success": 1})),
        ):
            (tmp_path / folder / name).write_text(text)
            assert trials(read_logs(tmp_path / folder / name).turns)["task"].to_list() == [task]
    assert set(trials(read_logs(tmp_path / "w[1]").turns)["task"]) == {"right"}
    assert detect.SUFFIXES


def test_gzip_is_unpacked(sample_files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = sample_files["own"].parent
    for name, path in sample_files.items():
        packed = tmp_path / "logs" / path.relative_to(folder).with_name(f"{path.name}.gz")
        packed.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            packed.write_bytes(gzip.compress(path.read_bytes()))
            same = read_logs(f"m={packed}").turns.frame.equals(read_logs(f"m={path}").turns.frame)
            assert same, name
    assert len(read_logs(tmp_path / "logs").turns) > 0
    whole = gzip.compress(b'{"task": "a", "success": true}')
    (tmp_path / "half.jsonl.gz").write_bytes(whole[:-9])
    with pytest.raises(InputError, match="not a whole gzip file"):
        read_logs(tmp_path / "half.jsonl.gz")
    monkeypatch.setattr("palaestra.evaluation.logs.files.MOST_BYTES", 1 << 20)
    (tmp_path / "bomb.jsonl.gz").write_bytes(gzip.compress(b" " * (3 << 20)))
    with pytest.raises(InputError, match="unpacks to more than 1 MiB"):
        read_logs(tmp_path / "bomb.jsonl.gz")


@pytest.mark.parametrize("code", ["utf-16", "utf-16-be"])
def test_json_lines_of_another_coding(code: str, tmp_path: Path) -> None:
    text = '{"task": "é", "success": true}\n{"task": "b", "success": false}\n'
    (tmp_path / "log.jsonl").write_bytes(text.encode(code) if code == "utf-16" else b"\xfe\xff" + text.encode(code))
    assert read_logs(tmp_path / "log.jsonl").turns["task"].to_list() == ["é", "b"]
