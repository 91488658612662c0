"""Samplers: which tasks of a table are played next, by how hard they seemed.

Each is `choose(table, number, iteration, rng) -> row numbers`, fewer than asked for where the table has none. Left
out: stages by a task's looks (`curriculum`) and failed tasks once more (`failure_replay`), which need no table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import polars as pl

from palaestra.errors import InputError, nearest
from palaestra.foundation.registry import read_call
from palaestra.learning.task_table import learnable


class Sampler(Protocol):
    """Protocol of a sampler: `choose(tasks, number, …)` -> row numbers of a table of tasks, at most `number`.

    None is chosen twice.
    """

    def choose(self, tasks: pl.DataFrame, number: int, iteration: int, rng: np.random.Generator) -> np.ndarray:
        """Numbers of the chosen rows, int64[at most number], none twice."""


def _drawn(rows: np.ndarray, number: int, rng: np.random.Generator) -> np.ndarray:
    return rng.choice(rows, min(number, len(rows)), replace=False)


@dataclass
class Learnable:
    """Sampler of tasks whose chance of success lies in [low, high], each equally likely; see `learnable`."""

    low: float = 0.05
    high: float = 0.95

    def __post_init__(self) -> None:
        learnable(self.low, self.high)

    def choose(self, tasks: pl.DataFrame, number: int, iteration: int, rng: np.random.Generator) -> np.ndarray:
        """Numbers of the chosen rows."""
        return _drawn(np.flatnonzero(tasks.select(learnable(self.low, self.high)).to_series().to_numpy()), number, rng)


@dataclass
class Percentile:
    """Sampler of tasks up to a percentile of difficulty that rises evenly from `start` to `end` in `steps` iterations.

    Raises:
        InputError: not 0 < start <= end <= 1, or steps is less than 1.
    """

    start: float = 0.2
    end: float = 1.0
    steps: int = 100

    def __post_init__(self) -> None:
        if not 0 < self.start <= self.end <= 1 or self.steps < 1:
            raise InputError(f"percentile: start={self.start}, end={self.end} must rise in (0, 1], steps={self.steps}")

    def choose(self, tasks: pl.DataFrame, number: int, iteration: int, rng: np.random.Generator) -> np.ndarray:
        """Numbers of the chosen rows."""
        hard = tasks["difficulty"].fill_null(float("nan")).to_numpy()
        known = np.flatnonzero(~np.isnan(hard))
        cap = self.start + (self.end - self.start) * min(1.0, iteration / self.steps)
        if not len(known):
            return known
        return _drawn(known[hard[known] <= np.quantile(hard[known], cap, method="lower")], number, rng)


@dataclass
class AdaptiveLevel:
    """Sampler of tasks of one difficulty level out of `levels`; the level follows the score (SAPO, arXiv 2509.08721).

    Every `every` reports the mean of the last `window` is compared with the `window` before: higher by more than
    `delta` is one level up, lower one down.
    """

    levels: int = 5
    window: int = 10
    delta: float = 0.05
    every: int = 5
    level: int = 1
    scores: list[float] = field(default_factory=list)
    reports: int = 0

    def report(self, score: float) -> int:
        """Report the mean score of an iteration; returns the level after it, from 1."""
        self.scores = [*self.scores, score][-2 * self.window :]
        self.reports += 1
        if self.reports % self.every == 0 and len(self.scores) == 2 * self.window:
            change = np.mean(self.scores[self.window :]) - np.mean(self.scores[: self.window])
            self.level += int(change > self.delta) - int(change < -self.delta)
            self.level = min(max(self.level, 1), self.levels)
        return self.level

    def choose(self, tasks: pl.DataFrame, number: int, iteration: int, rng: np.random.Generator) -> np.ndarray:
        """Numbers of the chosen rows."""
        hard = tasks["difficulty"].fill_null(float("nan")).to_numpy()
        known = np.flatnonzero(~np.isnan(hard))
        order = known[np.argsort(hard[known], kind="stable")]
        return _drawn(np.array_split(order, self.levels)[self.level - 1], number, rng)


SAMPLERS: dict[str, Any] = {"learnable": Learnable, "percentile": Percentile, "adaptive_level": AdaptiveLevel}


def sampler(text: str) -> Sampler:
    """Sampler made from the text of its call: `learnable(low=0.2, high=0.8)`.

    Raises:
        InputError: there is none, or it does not take these options.
    """
    name, values, options = read_call(text)
    if name not in SAMPLERS:
        raise InputError(f"task_table: sample={text!r}{nearest(name, SAMPLERS)}")
    try:
        found: Sampler = SAMPLERS[name](*values, **options)
    except TypeError as error:
        raise InputError(f"task_table: sample={text!r}: {error}") from error
    return found
