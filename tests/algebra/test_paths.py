"""Paths are names: brackets in them mean nothing, and a line of JSON ends where it ends."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import palaestra
from palaestra.algebra.turns import Turns
from palaestra.foundation.checksums import signed

SOURCES = Path(palaestra.__file__).parent
KINDS = ("parquet", "csv", "ipc", "ndjson")
READERS = {f"{way}_{kind}" for way in ("read", "scan") for kind in KINDS} | {"read_parquet_schema"}


def test_a_folder_with_brackets_is_itself(tmp_path: Path) -> None:
    for name, reward in (("d1", 1.0), ("d[1]", 2.0)):
        Turns({"episode": [0], "reward": [reward]}).save(tmp_path / name / "turns.parquet")
    assert Turns.load(tmp_path / "d[1]")["reward"].to_list() == [2.0]
    assert Turns.load(tmp_path / "d[1]" / "turns.parquet")["reward"].to_list() == [2.0]
    Turns({"episode": [0], "score": [2.0]}).save(tmp_path / "q[1].parquet")
    Turns({"episode": [0], "reward": [2.0]}).save(tmp_path / "q1.parquet")
    assert Turns.columns_of(tmp_path / "q[1].parquet") == ["episode", "score"]
    assert Turns.load(tmp_path / "q[1].parquet", ["score"])["score"].to_list() == [2.0]
    Turns({"episode": [0], "reward": [3.0]}).save(tmp_path / "*.parquet")
    assert Turns.load(tmp_path / "*.parquet")["reward"].to_list() == [3.0]


def test_no_reader_of_polars_expands_a_path() -> None:
    """polars takes a path for a pattern unless it is told; some readers cannot be told, so nothing uses them."""
    loose = []
    for file in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
                continue
            from_memory = isinstance(node.args[0], ast.Call) and "BytesIO" in ast.unparse(node.args[0].func)
            told = any(k.arg == "glob" and ast.unparse(k.value) == "False" for k in node.keywords)
            if node.func.attr in READERS and ast.unparse(node.func.value) == "pl" and not (told or from_memory):
                loose.append(f"{file.relative_to(SOURCES)}:{node.lineno}")
    assert loose == []


def test_a_line_separator_in_a_name_ends_no_line(tmp_path: Path) -> None:
    from palaestra.interface.report.load import load_metrics
    from palaestra.judges.asking import AnswerCache
    from palaestra.learning.journal import Journal

    lines = [f'{{"iteration": {n}, "policies": {{"a\u2028b": {{}}}}}}\n' for n in range(5)]
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(lines), encoding="utf-8")
    assert len(load_metrics(path)[0]) == 5
    journal = Journal(path)
    journal.rewind(3)
    assert [line["iteration"] for line in journal.lines] == [0, 1, 2, 3]
    cache = tmp_path / "answers.jsonl"
    line = json.dumps(signed({"key": "k", "answer": "yes\u2028no"}), ensure_ascii=False)
    cache.write_text(f"{line}\n", encoding="utf-8")
    assert AnswerCache(cache).answers == {"k": "yes\u2028no"}
