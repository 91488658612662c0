"""Which rows of the atlas a run of the tests plays: a twelfth by the commit, and all whose evidence is of other code.

`PALAESTRA_ALL=1` plays all of them, whatever the commit. Red parts are left out, and worked numbers that take over a
second; the others never are.
"""

from __future__ import annotations

import functools
import os
import subprocess
from datetime import date
from pathlib import Path

import pytest

from palaestra_atlas.verification import evidence
from palaestra_atlas.verification.verify import digest_of

PARTS = 12
DEAR = 1.0
"""Seconds of a worked number, as its evidence says, from which on it is played in turn only."""


@functools.cache
def turn() -> int:
    """Which part of the rows it is this time, from 0: the commit's, so that a run can be repeated; else the day's."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True)
    return (int(commit.stdout, 16) if commit.returncode == 0 else date.today().toordinal()) % PARTS


@functools.cache
def proved(number: int) -> bool:
    """Whether a row has evidence of the code as it is now."""
    found = evidence.read(number)
    return found is not None and not found.fast and found.digest == digest_of(number)


def due(number: int) -> bool:
    """Whether the row is played in this run."""
    return os.environ.get("PALAESTRA_ALL", "0") != "0" or number % PARTS == turn() or not proved(number)


def dear(number: int, check: str) -> bool:
    """Whether a check of a row took longer than `DEAR` when its evidence was made."""
    found = evidence.read(number)
    return found is not None and any(each.name == check and each.seconds > DEAR for each in found.checks)


def skip_unless_due(number: int) -> None:
    """Leaves a test out whose row is played for other commits."""
    if not due(number):
        pytest.skip(f"row {number} is played every {PARTS} commits or so; PALAESTRA_ALL=1 plays all rows")


def said() -> str:
    """One line for the end of a run."""
    return (
        f"Of the rows of the atlas with evidence of this code, part {turn() + 1} of {PARTS} was played, by the commit; "
        "PALAESTRA_ALL=1 plays all."
    )
