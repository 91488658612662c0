"""Answers of a reward program to calls that were made before, so that a run of many iterations pays for each once.

A process per call costs milliseconds. A program is a function of what it sees, so an equal call has an equal answer;
errors are not kept, since a limit of time or memory may have caused them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from palaestra.envs.sandbox import CallOutcome

Calls = Sequence[Sequence[dict[str, Any]]]
"""For each memory the turns that share it, in order."""
LARGEST = 100_000
"""Calls that are kept; then the oldest are dropped."""


class KnownAnswers:
    """Bounded cache of a reward program's outcomes, by the program's digest and the turns that share one memory.

    >>> known, asked = KnownAnswers(), []
    >>> def call(calls): return asked.append(len(calls)) or [[CallOutcome(1.0)] for _ in calls]
    >>> _ = known.complete("digest", [[{"gold": 1}], [{"gold": 2}], [{"gold": 1}]], call)
    >>> found = known.complete("digest", [[{"gold": 3}], [{"gold": 2}]], call)
    >>> asked, found[1][0].value
    ([2, 1], 1.0)
    """

    def __init__(self, largest: int = LARGEST) -> None:
        self.largest = largest
        self._kept: dict[tuple[str, str], list[CallOutcome]] = {}

    def complete(
        self, program: str, calls: Calls, call: Callable[[Calls], list[list[CallOutcome]]]
    ) -> list[list[CallOutcome]]:
        """Outcomes of all calls; `call` runs only the distinct ones that are not cached.

        Args:
            program: Digest of the program, its function and its limits.
            calls: The turns of each memory.
            call: Runs the program.
        """
        keys = [(program, json.dumps(each)) for each in calls]
        new = {key: each for key, each in zip(keys, calls, strict=True) if key not in self._kept}
        found = dict(zip(new, call(list(new.values())), strict=True)) if new else {}
        outcomes = [found[key] if key in found else self._kept[key] for key in keys]
        self._kept |= {key: made for key, made in found.items() if all(each.error is None for each in made)}
        for key in list(islice(self._kept, max(len(self._kept) - self.largest, 0))):
            del self._kept[key]
        return outcomes
