"""`Stories`: texts with flaws that a rubric may or may not name, and a mark that only looks like one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError


@dataclass
class _StoriesState:
    over: bool = False


@ENVS.register("native/stories")
class Stories(NativeEnv):
    """One-turn env: `teller` picks one of `stories` stories; one of the flawless half pays 1, others 0.

    Bad stories have one to three of `flaws` flaws.

    Marks 0 to flaws - 1 are the flaws; the next mark is in 30 % of the good ones and means nothing. Which has which is
    drawn from `draw`. facts: marks, what the story has; good.
    """

    agents: tuple[str, ...] = ("teller",)
    facts = {"marks": list[int], "good": bool}

    def __init__(self, *, stories: int = 24, flaws: int = 11, draw: int = 0) -> None:
        if stories < 2 or flaws < 3:
            raise InputError(f"Stories: stories={stories} must be at least 2, flaws={flaws} at least 3")
        self.marks = told(stories, flaws, np.random.default_rng(draw))
        self.flaws = flaws
        self.choices = tuple(f"story {number}" for number in range(stories))

    def begin(self) -> tuple[str, _StoriesState]:
        """Start; every episode is the same."""
        return "stories", _StoriesState()

    def look(self) -> dict[str, Observation]:
        """Observation of the teller: a fixed text."""
        return {} if self.state.over else {"teller": Observation("tell a story", choices=self.choices)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Score the story; an invalid choice has all flaws."""
        self.state.over, number = True, chosen["teller"]
        marks = list(range(self.flaws)) if number is None else self.marks[number]
        good = all(mark >= self.flaws for mark in marks)
        return {"teller": float(good)}, {"marks": marks, "good": good, "success": good}


def told(stories: int, flaws: int, rng: np.random.Generator) -> list[list[int]]:
    """Flaws of each of so many stories, list of int lists: every other has 1 to 3 random ones < `flaws`, the rest none.

    The rest may have `flaws` itself, which is praise.
    """
    found = []
    for number in range(stories):
        if number % 2:
            found.append(sorted(rng.permutation(flaws)[: int(rng.integers(1, 4))].tolist()))
        else:
            found.append([flaws] if rng.random() < 0.3 else [])
    return found
