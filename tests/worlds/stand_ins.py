"""What stands for a seed in tests of how seeds are run: light enough to be imported by every process."""

from __future__ import annotations

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
    recipe: Any = SimpleNamespace(train=SimpleNamespace(iterations=3))


def do(work: Work, resume: bool) -> dict[str, Any]:
    if work.title == "fails":
        raise LearnerError("seed 7: the loss is nan")
    if work.title == "sleeps":
        time.sleep(60)
    if work.title == "dies":
        os._exit(3)
    return {"seed": work.seed, "resume": resume}


def nothing() -> None:
    """Stands for what prepares a process."""
