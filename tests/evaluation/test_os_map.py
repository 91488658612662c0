from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from palaestra.errors import InputError
from palaestra.evaluation.os_map import DOMAINS, LEVELS, read_tasks
from palaestra.evaluation.pivot import matrix_table, wide

TASKS = {
    "Office": [11, 72, 23, 16], "Knowledge": [4, 41, 40, 13], "Life": [0, 29, 16, 4], "Entertainment": [0, 16, 14, 1],
    "Creativity": [1, 15, 5, 4], "System": [9, 62, 16, 4],
}  # fmt: skip
"""Tasks by domain and level, counted in the released index."""


def test_the_matrix_has_margins_and_no_invented_cells() -> None:
    rows = [
        {
            "run": "run",
            "task": f"{domain} {level} {n}",
            "trial": 0,
            "domain": domain,
            "level": level,
            "success": n % 2 == 0,
        }
        for domain, counts in TASKS.items()
        for level, count in zip(LEVELS, counts, strict=False)
        for n in range(count)
    ]
    assert tuple(TASKS) == DOMAINS
    table = matrix_table(pl.DataFrame(rows), rows="domain", columns="level")
    n = wide(table, "n")
    assert n.row(-1) == ("all", 25, 235, 114, 42, 416)
    assert n.filter(pl.col("row") == "Life").row(0) == ("Life", None, 29, 16, 4, 49)
    assert table["low"].null_count() == 0


def test_task_files(tmp_path: Path) -> None:
    tasks = [
        {"id": "l2_create_debt", "instruction": "Create a debt.", "related_apps": ["firefly"], "snapshot": "x"},
        {"id": "0d8b7de3", "instruction": "Search.", "snapshot": "chrome", "level": 3, "domain": "Life"},
        {"id": "other", "instruction": "?"},
    ]
    for task in tasks:
        (tmp_path / f"{task['id']}.json").write_text(json.dumps(task))
    (tmp_path / "all.json").write_text("[]")
    (tmp_path / "broken.json").write_text("{")
    found = read_tasks(tmp_path).sort("task")
    assert found.select("task", "level", "domain", "app").rows() == [
        ("0d8b7de3", "L3", "Life", "chrome"), ("l2_create_debt", "L2", None, "firefly"), ("other", None, None, None),
    ]  # fmt: skip
    with pytest.raises(InputError, match="no task file"):
        read_tasks(tmp_path / "nothing")
