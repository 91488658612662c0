"""The door to the terminal: names and words of logs are text there, whatever they hold."""

from __future__ import annotations

import ast
import io
import json
from pathlib import Path

import pytest
from rich.table import Table

from palaestra.errors import SchemaError
from palaestra.foundation.progress import Bars
from palaestra.interface import cli
from palaestra.interface.cli.app import Door, escape_controls, prefix_errors
from palaestra.runs.recipe import look

NAMES = ("qwen[full]", "qwen[lora]", "new[/x]", ":smile:", "a\x1b[31mred", "b\x1b]0;title\x07", "c\x9b2J", "d\u202egnp",
         "e\u2028f", "g\ud800h", "i\u200fj", "k\x85l")  # fmt: skip


SPELT = [name for name in NAMES if "\ud800" not in name]
"""Those that a file can hold."""
HARMFUL = set("\x1b\x07\x9b\u202e\u2028\ud800\u200f\x85")


def test_a_table_and_a_line_show_names_as_they_are() -> None:
    door = Door(file=io.StringIO(), width=200, force_terminal=False)
    table = Table("system")
    for name in NAMES:
        table.add_row(name)
        door.print(f"{name}: better")
    door.print(table)
    said = door.file.getvalue()
    for name in NAMES:
        assert said.count(escape_controls(name)) == 2, name
    assert len({escape_controls(name) for name in NAMES}) == len(NAMES)
    assert not set(said) & HARMFUL


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        cli.main([*map(str, arguments)])
    said = capsys.readouterr()
    return int(stopped.value.code or 0), said.out, said.err


def test_systems_with_hostile_names_are_told_apart_and_harm_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"system": name, "task": str(n), "success": n < 3} for name in SPELT for n in range(6)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    for arguments in (["evaluate", path], ["evaluate", path, "--json"], ["triage", path, "--out", tmp_path / "t"]):
        code, out, err = run(capsys, *arguments)
        assert code == 0, err
        assert not set(out + err) & HARMFUL
    told = json.loads(run(capsys, "evaluate", path, "--json")[1])
    assert {row["system"]: row["tasks"] for row in told} == dict.fromkeys(SPELT, 6), "U+2028 ends no line"
    shown = run(capsys, "evaluate", path)[1]
    assert "qwen[full]" in shown
    assert "qwen[lora]" in shown
    code, _, err = run(capsys, "evaluate", path, "--baseline", "x\x1b[0m[/y]")
    assert code == 2
    assert "\x1b" not in err


def test_an_error_names_the_file_whoever_raises_it() -> None:
    with pytest.raises(SchemaError, match=r"^a/b\.csv: no column 'x'$"), prefix_errors(["new=a/b.csv"]):
        raise SchemaError("no column 'x'")
    with pytest.raises(SchemaError, match=r"^b\.csv: no column$"), prefix_errors(["b.csv"]):
        raise SchemaError("b.csv: no column")


def test_every_line_of_the_command_line_goes_through_the_door() -> None:
    """A bare `print` would write names of recipes, logs and runs as they come."""
    for path in Path(cli.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = node.func if isinstance(node, ast.Call) else None
            assert not (isinstance(called, ast.Name) and called.id == "print"), f"{path.name}:{node.lineno}"  # type: ignore[attr-defined]
            assert not (isinstance(called, ast.Attribute) and called.attr == "write"), path.name


def test_what_a_recipe_says_is_written_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "evil.yaml"
    path.write_text(
        'name: x\ndescription: "clear \\e[2J, next \\L line, [red]no[/] markup"\nenv: {make: native/corridor}\n'
        "policies: {one: {kind: tabular}}\nteam: {'*': one}\n"
    )
    for arguments in ([], ["--explain"], ["--json"]):
        code, out, err = run(capsys, "recipes", path, *arguments)
        assert (code, err) == (0, "")
        assert "[red]no[/] markup" in out
        assert not set(out) & HARMFUL
    kept = tmp_path / "again.yaml"
    kept.write_text(run(capsys, "recipes", path)[1])
    assert look(kept) == look(path), "and is read back as it was"


def test_titles_of_progress_keep_their_brackets() -> None:
    for terminal in (True, False):
        door = Door(file=io.StringIO(), width=120, force_terminal=terminal)
        with Bars(door) as bars:
            for name in NAMES[:3]:
                bars.task(f"{name} seed 0")("training", 1, 4, note="[b]bold[/b]")
        said = door.file.getvalue()  # type: ignore[attr-defined]
        assert all(f"{name} seed 0" in said for name in NAMES[:3])
