"""Iterations in which the phases of a training begin, for a line and a name on every learning curve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PhaseMark:
    """Data of the start of a training phase: its name and iteration, as mean and range over seeds."""

    name: str
    at: float
    low: int
    high: int


def phase_marks(seeds: Iterable[Sequence[Mapping[str, Any]]]) -> list[PhaseMark]:
    """List of `PhaseMark`, the phase starts of a training, from the metrics of its seeds; empty if it has no phases.

    Seeds that went through the phases in one order are pooled, however far each came; those with another order, as of
    another variant, are left out.

    >>> one = [{"iteration": 1, "phase": "sft"}, {"iteration": 2, "phase": "rl"}]
    >>> other = [{"iteration": 1, "phase": "sft"}, {"iteration": 2, "phase": "sft"}, {"iteration": 3, "phase": "rl"}]
    >>> phase_marks([one, other])[1]
    PhaseMark(name='rl', at=2.5, low=2, high=3)
    """
    begun = [
        [(row["phase"], row["iteration"]) for before, row in zip([{}, *rows], rows) if _begins(before, row)]
        for rows in seeds
    ]
    longest = max(begun, key=len, default=[])
    names = [name for name, _ in longest]
    alike = [each for each in begun if [name for name, _ in each] == names[: len(each)]]
    marks = []
    for number, name in enumerate(names):
        at = [each[number][1] for each in alike if len(each) > number]
        marks.append(PhaseMark(name, sum(at) / len(at), min(at), max(at)))
    return marks


def _begins(before: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    return row.get("phase") is not None and before.get("phase") != row["phase"]
