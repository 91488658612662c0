"""Whether judges were silent while a team trained, so that little or nothing was learned of what they should have paid.

A judge that is down makes missing rewards, not failing runs; whoever reads only the last line has to learn of it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

MOST = 0.5
"""Share of the questions without an answer from which on a run says so at its end."""
LONGEST = 200
"""Most characters of an error in that sentence."""


class Silence(TypedDict):
    """Dict type of judges' failures in a seed's training: counts of questions, failed ones, unrewarded iterations."""

    asked: int
    failed: int
    unpaid: int
    iterations: int
    why: str


def silence(lines: Iterable[Mapping[str, Any]]) -> Silence:
    """Counts, as a `Silence`, failed questions to judges in a seed's metrics dicts; `why` is the last error."""
    found = Silence(asked=0, failed=0, unpaid=0, iterations=0, why="")
    for line in lines:
        found["iterations"] += 1
        found["unpaid"] += line["reward"] is None
        for stage in (line.get("stages") or {}).values():
            if calls := stage.get("calls"):  # what else a stage counts as failed, tasks say, is no question
                found["asked"] += calls
                found["failed"] += min(stage.get("failed", 0), calls)
                found["why"] = str(stage.get("why") or found["why"])
    return found


def unjudged(seeds: Iterable[Silence]) -> str | None:
    """Warning sentence from seeds' `Silence` counts if judges left most questions unanswered; None otherwise.

    >>> lines = [{"reward": None, "stages": {"score": {"calls": 8, "failed": 8, "why": "ConnectError"}}}]
    >>> print(unjudged([silence(lines)]))
    NOTHING WAS LEARNED: 8 of 8 questions to judges got no answer, and in 1 of 1 iterations no turn had a reward ...
    """
    every = list(seeds)
    asked, failed = sum(each["asked"] for each in every), sum(each["failed"] for each in every)
    unpaid, number = sum(each["unpaid"] for each in every), sum(each["iterations"] for each in every)
    if not failed or failed < MOST * asked:
        return None
    why = next((each["why"] for each in reversed(every) if each["why"]), "it said nothing")[:LONGEST]
    return (
        f"{'NOTHING WAS' if unpaid == number else 'LITTLE CAN HAVE BEEN'} LEARNED: {failed:,} of {asked:,} questions "
        f"to judges got no answer, and in {unpaid} of {number} iterations no turn had a reward (the last: {why}). "
        "Make the judge answer, and train into another --out"
    )
