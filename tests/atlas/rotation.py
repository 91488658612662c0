"""Which rows of the atlas a run of the tests plays: a twentieth, a quarter of those whose evidence is of other code.

The commit says which. If all with old evidence were played, a change of a module that many rows name would make each
run twice as long. Rows without evidence are always played, and `PALAESTRA_ALL=1` plays all. Red parts are left out,
and worked numbers that take over .3 seconds; the others never are.
"""

from __future__ import annotations

import functools
import os
import subprocess
from datetime import date
from pathlib import Path

import pytest

from palaestra_atlas import systems
from palaestra_atlas.verification import evidence
from palaestra_atlas.verification.verify import digest_of

PARTS, OLD = 20, 4
"""In how many parts the rows are played, and those whose evidence is of other code."""
DEAR = 0.3
"""Seconds of a worked number, as its evidence says, from which on it is played in turn only."""


@functools.cache
def turn() -> int:
    """Which part of the rows it is this time, from 0: the commit's, so that a run can be repeated; else the day's."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True)
    return (int(commit.stdout, 16) if commit.returncode == 0 else date.today().toordinal()) % PARTS


@functools.cache
def parts() -> dict[int, int]:
    """The part of each row: the dearest first, each into the part that costs least so far, so that all cost alike."""
    costs = dict.fromkeys((row.id for row in systems()), 0.0)
    for number in costs:
        if found := evidence.read(number):
            costs[number] = sum(each.seconds for each in found.checks if not each.seeds and each.seconds > DEAR)
    totals, chosen = [0.0] * PARTS, {}
    for number in sorted(costs, key=lambda number: (-costs[number], number)):
        chosen[number] = min(range(PARTS), key=lambda part: (totals[part], part))
        totals[chosen[number]] += costs[number] + 1.0  # what is not counted: quick experiments, parts, the line of use
    return chosen


@functools.cache
def proved(number: int) -> bool:
    """Whether a row has evidence of the code as it is now."""
    found = evidence.read(number)
    return found is not None and not found.fast and found.digest == digest_of(number)


def due(number: int) -> bool:
    """Whether the row is played in this run."""
    if os.environ.get("PALAESTRA_ALL", "0") != "0" or evidence.read(number) is None:
        return True
    return parts()[number] == turn() or (not proved(number) and parts()[number] % OLD == turn() % OLD)


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
        f"Of the rows of the atlas part {turn() + 1} of {PARTS} was played, by the commit, and a quarter of those "
        "whose evidence is of other code; PALAESTRA_ALL=1 plays all."
    )
