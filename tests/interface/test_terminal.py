"""The door to the terminal: names and words of logs are text there, whatever they hold."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.table import Table

from palaestra.errors import SchemaError
from palaestra.interface import cli
from palaestra.interface.cli.app import Door, naming, visible

NAMES = ("qwen[full]", "qwen[lora]", "new[/x]", ":smile:", "a\x1b[31mred", "b\x1b]0;title\x07", "c\x9b2J", "d\u202egnp")


def test_a_table_and_a_line_show_names_as_they_are() -> None:
    door = Door(file=io.StringIO(), width=200, force_terminal=False)
    table = Table("system")
    for name in NAMES:
        table.add_row(name)
        door.print(f"{name}: better")
    door.print(table)
    said = door.file.getvalue()
    for name in NAMES:
        assert said.count(visible(name)) == 2, name
    assert not set(said) & set("\x1b\x07\x9b\u202e")


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        cli.main([*map(str, arguments)])
    said = capsys.readouterr()
    return int(stopped.value.code or 0), said.out, said.err


def test_systems_with_hostile_names_are_told_apart_and_harm_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"system": name, "task": str(n), "success": n < 3} for name in NAMES for n in range(6)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for arguments in (["evaluate", path], ["evaluate", path, "--json"], ["triage", path, "--out", tmp_path / "t"]):
        code, out, err = run(capsys, *arguments)
        assert code == 0, err
        assert not set(out + err) & set("\x1b\x07\x9b\u202e")
    assert {row["system"] for row in json.loads(run(capsys, "evaluate", path, "--json")[1])} == set(NAMES)
    shown = run(capsys, "evaluate", path)[1]
    assert "qwen[full]" in shown
    assert "qwen[lora]" in shown
    code, _, err = run(capsys, "evaluate", path, "--baseline", "x\x1b[0m[/y]")
    assert code == 2
    assert "\x1b" not in err


def test_an_error_names_the_file_whoever_raises_it() -> None:
    with pytest.raises(SchemaError, match=r"^a/b\.csv: no column 'x'$"), naming(["new=a/b.csv"]):
        raise SchemaError("no column 'x'")
    with pytest.raises(SchemaError, match=r"^b\.csv: no column$"), naming(["b.csv"]):
        raise SchemaError("b.csv: no column")
