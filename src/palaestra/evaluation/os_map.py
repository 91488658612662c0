"""OS-MAP's two axes as metadata of tasks [74] (arXiv 2507.19132): how much is automated, in which part of life.

`palaestra.evaluation.pivot.matrix_table` turns trials with these columns into the matrix of domains and levels, with
margins. Left out: the desktops; OSWorld has the machines.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl

from palaestra.errors import InputError

LEVELS = {
    "L1": "execution: the steps are given",
    "L2": "planning: only the goal is given",
    "L3": "adaptability: the state is perturbed or unexpected",
    "L4": "orchestration: several sub-goals or applications in order",
    "L5": "beyond: not tested",
}
SCOPES = {"S1": "single application", "S2": "one domain of demands", "S3": "the whole hierarchy of demands"}
DOMAINS = ("Office", "Knowledge", "Life", "Entertainment", "Creativity", "System")


def read_tasks(folder: str | Path) -> pl.DataFrame:
    """Reads OS-MAP's task files below a folder to a table: task, level, domain, app, instruction; null if not given.

    A level is read from the field `level`, else from the beginning of the id ("l2_create_debt"). The app is the first
    of `related_apps`, else `snapshot`. Files that are no task are passed over.

    Raises:
        InputError: there is no task in the folder.
    """
    rows = []
    for path in sorted(Path(folder).rglob("*.json")):
        try:
            said = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(said, dict) and {"id", "instruction"} <= said.keys():
            rows.append(_task(said))
    if not rows:
        raise InputError(f"{folder}: no task file (JSON with id and instruction)")
    names = ("task", "level", "domain", "app", "instruction")
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String))


def _task(said: dict[str, Any]) -> dict[str, str | None]:
    apps = said.get("related_apps")
    named = re.match(r"l([1-5])_", str(said["id"]))
    level = f"{said.get('level') or (named[1] if named else '')}".upper().removeprefix("L")
    return {
        "task": str(said["id"]),
        "level": f"L{level}" if f"L{level}" in LEVELS else None,
        "domain": said.get("domain") if isinstance(said.get("domain"), str) else None,
        "app": str(apps[0]) if isinstance(apps, list) and apps else said.get("snapshot"),
        "instruction": str(said["instruction"]),
    }
