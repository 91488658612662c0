"""`PlanMemory`: action lists that worked, by subgoal, and what they have in common; kept in a file between runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from palaestra.errors import InputError, StorageError

Plan = tuple[str, ...]


@dataclass
class PlanMemory:
    """Memory of successful action lists per subgoal, which gives reference plans ([177], arXiv 2305.17144).

    Attributes:
        least: Number of successes from which on there is a reference; the paper's number is not known.
        most: Number of lists kept of a subgoal, the newest.
        plans: Lists by subgoal, oldest first.

    >>> memory = PlanMemory(least=2)
    >>> memory.add("log", ["explore log", "go up 0", "mine log"], success=True)
    >>> memory.add("log", ["explore log", "mine log"], success=True)
    >>> memory.reference("log")
    ('explore log', 'mine log')
    """

    least: int = 5
    most: int = 20
    plans: dict[str, list[Plan]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the numbers. Raises InputError."""
        if not 1 <= self.least <= self.most:
            raise InputError(f"PlanMemory: 1 <= least={self.least} <= most={self.most}")

    def add(self, subgoal: str, actions: Sequence[str], success: bool) -> None:
        """Store a list of actions that reached a subgoal; failed ones are ignored."""
        if success and actions:
            self.plans[subgoal] = [*self.plans.get(subgoal, []), tuple(actions)][-self.most :]

    def reference(self, subgoal: str) -> Plan | None:
        """Reference plan of a subgoal: actions that all its lists share; None before `least` lists, or without any."""
        known = self.plans.get(subgoal, [])
        if len(known) < self.least:
            return None
        found = known[0]
        for other in known[1:]:
            found = common(found, other)
        return found or None

    def save(self, path: str | Path) -> None:
        """Write the memory to a JSON file."""
        Path(path).write_text(json.dumps(self.plans, indent=1), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path, *, least: int = 5, most: int = 20) -> PlanMemory:
        """Load the memory that an earlier run saved; an empty one if there is no file.

        Raises:
            StorageError: The file is none of plans.
        """
        file = Path(path)
        if not file.exists():
            return cls(least, most)
        try:
            read = json.loads(file.read_text(encoding="utf-8"))
            plans = {str(name): [tuple(map(str, plan)) for plan in each][-most:] for name, each in read.items()}
        except (ValueError, AttributeError, TypeError) as error:
            raise StorageError(f"{file} holds no plans: {error}") from error
        return cls(least, most, plans)


def common(a: Plan, b: Plan) -> Plan:
    """Longest common subsequence of two lists of actions, as a tuple; of equally long ones the earliest in `a`."""
    length = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in reversed(range(len(a))):
        for j in reversed(range(len(b))):
            length[i][j] = 1 + length[i + 1][j + 1] if a[i] == b[j] else max(length[i + 1][j], length[i][j + 1])
    found, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        if a[i] == b[j]:
            found.append(a[i])
            i, j = i + 1, j + 1
        elif length[i][j + 1] == length[i][j]:
            j += 1
        else:
            i += 1
    return tuple(found)
