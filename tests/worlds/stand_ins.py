"""What stands for a seed in tests of how seeds are run: light enough to be imported by every process."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from palaestra.errors import LearnerError


class Work(NamedTuple):
    """Has the fields of a job; what it does is its title."""

    title: str
    directory: Path
    seed: int = 0
    recipe: Any = SimpleNamespace(train=SimpleNamespace(iterations=3), policies={})


def do(work: Work, resume: bool, ranks: int = 1) -> dict[str, Any]:
    if work.title == "fails":
        raise LearnerError("seed 7: the loss is nan")
    if work.title == "sleeps":
        time.sleep(600)
    if work.title == "dies":
        os._exit(3)
    if work.title == "warns":
        lines = [{"iteration": i, "alarms": [f"policy 'a': {90 + i}% of its rows have no credit"]} for i in (1, 2, 3)]
        (work.directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {"seed": work.seed, "resume": resume}


def nothing(*_: object) -> None:
    """Stands for what prepares a process."""
