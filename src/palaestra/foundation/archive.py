"""`Archive`: what somebody once wrote, found again by likeness: reports of a team's past, plans that won, tips.

Entries are vectors with whatever belongs to them; what is found is ranked by the cosine. `GoalMemory` finds them by
the goal that they served instead. Left out: indices for more than some hundred thousand entries, making the vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.errors import InputError


@dataclass(frozen=True)
class Entry:
    """Data of an entry of an archive: key, content, score, owner and time.

    key: what it is called. content: what was written. score: how good it is. owner: whose it is. time: when.
    """

    key: str
    content: Any
    score: float = 0.0
    owner: str = ""
    time: float = 0.0


class Archive:
    """Store in memory of entries with embeddings: `top` k by cosine similarity, or `best` by score.

    >>> archive = Archive()
    >>> archive.add(Entry("one", "north"), [0, 1])
    >>> archive.add(Entry("two", "east", owner="ann"), [1, 0])
    >>> [entry.content for entry in archive.top([1, 0.5], 1)]
    ['east']
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._vectors = np.zeros((0, 0))

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def vectors(self) -> np.ndarray:
        """Embeddings of the entries, scaled to length 1, float64[entries, d]."""
        return self._vectors[: len(self.entries)]

    def add(self, entry: Entry, embedding: np.ndarray | list[float]) -> None:
        """Add an entry with its embedding.

        Raises:
            InputError: its vector has another length than those before, or is no vector of finite numbers.
        """
        unit = self._unit(embedding)
        used = len(self.entries)
        if used == len(self._vectors):  # room for twice as many
            grown = np.zeros((max(2 * used, 16), len(unit)))
            grown[:used] = self.vectors if used else grown[:0]
            self._vectors = grown
        self._vectors[used] = unit
        self.entries.append(entry)

    def top(self, query: np.ndarray | list[float], k: int, where: Callable[[Entry], bool] | None = None) -> list[Entry]:
        """The k entries most similar to the query, among those for which `where` is true; ties: older first."""
        if not self.entries:
            return []
        likeness = self.vectors @ self._unit(query)
        order = np.argsort(-likeness, kind="stable")
        if where is None:
            return [self.entries[at] for at in order[:k]]
        found: list[Entry] = []
        for at in order:
            if len(found) == k:
                break
            if where(self.entries[at]):
                found.append(self.entries[at])
        return found

    def best(self, k: int, where: Callable[[Entry], bool] | None = None) -> list[Entry]:
        """The k entries with the highest scores, among those for which `where` is true; ties: older first."""
        found = [entry for entry in self.entries if where is None or where(entry)]
        return sorted(found, key=lambda entry: -entry.score)[:k]

    def _unit(self, vector: np.ndarray | list[float]) -> np.ndarray:
        given = np.asarray(vector, float)
        size = self._vectors.shape[1] if self.entries else len(given) if given.ndim else 0
        if given.shape != (size,) or not size or not np.isfinite(given).all():
            raise InputError(f"Archive: a vector of shape {given.shape}, expected {size or 'some'} finite numbers")
        return np.asarray(given / max(np.linalg.norm(given), 1e-300))


class GoalMemory:
    """Memory of experiences by goal, and of goals by long-term goal; newest recalled first (DAMCS [181], 2502.05453).

    An experience is remembered once, where it was added last. What is recalled is the newest first.

    >>> graph = GoalMemory()
    >>> graph.add(Entry("3,4", "a tree", time=1), goal="wood", long_term="diamond")
    >>> graph.add(Entry("0,4", "a tree", time=2), goal="wood", long_term="diamond")
    >>> graph.add(Entry("9,9", "rocks", time=3), goal="stone", long_term="diamond")
    >>> [each.key for each in graph.recall("wood")], [each.key for each in graph.recall("diamond", k=2)]
    (['0,4', '3,4'], ['9,9', '0,4'])
    """

    def __init__(self) -> None:
        self._goals: dict[str, dict[str, Entry]] = {}
        self._below: dict[str, list[str]] = {}

    def add(self, experience: Entry, goal: str, long_term: str) -> None:
        """Add an experience under its goal, and the goal under its long-term one; the same key is replaced.

        Raises:
            InputError: a name would be a goal and a long-term goal.
        """
        if goal == long_term or goal in self._below or long_term in self._goals:
            raise InputError(f"GoalMemory: {goal=} below {long_term=}, but a goal and a long-term one are two names")
        self.drop(experience.key)
        self._goals.setdefault(goal, {})[experience.key] = experience
        below = self._below.setdefault(long_term, [])
        if goal not in below:
            below.append(goal)

    def drop(self, key: str) -> None:
        """Remove an experience by key, if it is there."""
        for experiences in self._goals.values():
            experiences.pop(key, None)

    def recall(self, goal: str, k: int | None = None) -> list[Entry]:
        """The k newest experiences of a goal, or of all goals below a long-term one."""
        found = [each for name in self._below.get(goal, [goal]) for each in self._goals.get(name, {}).values()]
        return sorted(found, key=lambda entry: -entry.time)[:k]
