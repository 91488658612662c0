"""`Lookup`: decide how often to search, then how to answer: the way of going about it is the policy's own choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

CHANCES = ((0.40, 0.42, 0.43, 0.45), (0.20, 0.23, 0.27, 0.30), (0.95, 0.05, 0.05, 0.05))


@dataclass
class _LookupState:
    searches: int | None = None
    over: bool = False


@ENVS.register("native/lookup")
class Lookup(NativeEnv):
    """Env of two turns: `searcher` picks a number of searches, then a strategy; win chance chances[searches][strategy].

    The default: not to search is safe and poor, one search misleads, two pay with the one right strategy. Luck is the
    group's, as everywhere: who does the same has the same. facts: searches; chance, of what was done at last.
    """

    agents: tuple[str, ...] = ("searcher",)
    facts = {"searches": int, "chance": float}

    def __init__(self, *, chances: Sequence[Sequence[float]] = CHANCES) -> None:
        self.chances = np.array(chances, float)
        if self.chances.ndim != 2 or not ((self.chances >= 0) & (self.chances <= 1)).all():
            raise InputError("Lookup: chances[searches][strategy] must be a table of numbers in [0, 1]")
        self.most, self.strategies = self.chances.shape
        names = [f"search {number} times" for number in range(self.most)]
        self.choices = (*names, *(f"strategy {number}" for number in range(self.strategies)))

    def begin(self) -> tuple[str, _LookupState]:
        """Start; every episode is the same."""
        return "lookup", _LookupState()

    def look(self) -> dict[str, Observation]:
        """Observation of the searcher: the question before the first turn, then the number of searches."""
        if self.state.over:
            return {}
        begun = self.state.searches is not None
        text = f"searched {self.state.searches} times" if begun else "a question"
        mask = (np.arange(len(self.choices)) >= self.most) == begun
        return {"searcher": Observation(text, choices=self.choices, mask=mask)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Take the number of searches, then score the answer; an invalid choice has not searched, or fails."""
        state, action = self.state, chosen["searcher"]
        if state.searches is None:
            state.searches = action if isinstance(action, int) else 0
            return {}, {"searches": state.searches}
        state.over = True
        chance = float(self.chances[state.searches, action - self.most]) if isinstance(action, int) else 0.0
        right = bool(self.rng.random() < chance)
        return {"searcher": float(right)}, {"searches": state.searches, "chance": chance, "success": right}
