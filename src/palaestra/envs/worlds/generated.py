"""Grid worlds made from a description in three layers: dynamics, what is seen, and the signs that stand for things.

The layers, the check of every level and the repair of a failed one are AutoEnv's [72] (arXiv 2511.19304). Left out: a
language model that writes and repairs code; a description is a handful of numbers here, and a repair follows rules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from palaestra.errors import InputError

THINGS = ("floor", "wall", "goal", "lava", "gem")
"""What a cell may be; the number of a thing is its place here."""
FLOOR, WALL, GOAL, LAVA, GEM = range(5)
SIGNS = ".#GLg"
"""Signs of the plain skin, in the order of `THINGS`."""
HIDDEN, SELF = "?", "A"
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))


@dataclass(frozen=True)
class Description:
    """Data of a generated grid world's parameters: size, shares of walls, lava and gems, reward, view, signs.

    Attributes:
        name: of the world.
        side: of its grid.
        walls: share of the cells that are walls.
        lava: number of cells that end the episode with nothing.
        gems: number of things that pay `pays` each and are then gone; 0: the reward is binary.
        pays: of a gem; the goal pays 1 and ends the episode.
        horizon: most moves.
        radius: how far is seen, in cells; None: everything.
        skin: "plain"; "inverse", goal and lava, and gem and wall, swap their signs; or five signs for `THINGS`.
        instruction: signs that it calls good and bad, in that order; None: those of the plain skin.
    """

    name: str
    side: int = 6
    walls: float = 0.15
    lava: int = 2
    gems: int = 0
    pays: float = 0.5
    horizon: int = 20
    radius: int | None = None
    skin: str = "plain"
    instruction: tuple[str, str] | None = None

    @property
    def signs(self) -> str:
        """The characters that stand for the things of the world in observations.

        Raises:
            InputError: the skin is neither a name nor five different signs.
        """
        skins = {"plain": SIGNS, "inverse": "".join(SIGNS[place] for place in (FLOOR, GEM, LAVA, GOAL, WALL))}
        signs = skins.get(self.skin, self.skin)
        if len(set(signs)) != len(THINGS) or {HIDDEN, SELF} & set(signs):
            raise InputError(f"skin {self.skin!r}: plain, inverse, or {len(THINGS)} different signs other than ? and A")
        return signs


@dataclass(frozen=True, eq=False)
class Level:
    """Data of a level of a generated grid world: its grid, start cell and horizon.

    grid: int[rows, columns] of `THINGS`; start: a cell; horizon: most moves.
    """

    grid: np.ndarray
    start: tuple[int, int]
    horizon: int


@dataclass(frozen=True)
class Verdict:
    """Result of `validate`: whether a level is solvable, its kind of reward, its largest return, and issues.

    valid: it can be solved; kind: of reward; maximum: largest return, exact; issues: what is wrong, by name.
    """

    valid: bool
    kind: Literal["binary", "cumulative"]
    maximum: float
    issues: tuple[str, ...]


def draw(description: Description, seed: int) -> Level:
    """Draws a random `Level` by a `Description` and a seed; it may be unsolvable."""
    rng, side = np.random.default_rng(seed), description.side
    grid = np.where(rng.random((side, side)) < description.walls, WALL, FLOOR)
    cells = rng.permutation(side * side)[: 2 + description.lava + description.gems]
    things = [FLOOR, GOAL, *[LAVA] * description.lava, *[GEM] * description.gems]
    grid.flat[cells] = things
    return Level(grid, (int(cells[0] // side), int(cells[0] % side)), description.horizon)


@dataclass
class Play:
    """Mutable episode of a `Level`: `step(action)` moves and returns (reward, thing entered), `view` gives the view."""

    level: Level
    pays: float = 0.5

    def __post_init__(self) -> None:
        self.at, self.grid, self.moves, self.over = self.level.start, self.level.grid.copy(), 0, False

    def step(self, action: int) -> tuple[float, int]:
        """Make a move: (reward, kind of thing that was walked into)."""
        row, column = self.at[0] + MOVES[action][0], self.at[1] + MOVES[action][1]
        self.moves += 1
        inside = 0 <= row < self.grid.shape[0] and 0 <= column < self.grid.shape[1]
        thing = int(self.grid[row, column]) if inside else WALL
        if thing != WALL:
            self.at = row, column
            if thing == GEM:
                self.grid[row, column] = FLOOR
        self.over = thing in (GOAL, LAVA) or self.moves >= self.level.horizon
        return {GOAL: 1.0, GEM: self.pays}.get(thing, 0.0), thing

    def view(self, signs: str, radius: int | None = None) -> np.ndarray:
        """The player's view, str[rows, columns]: a sign for each cell, `?` beyond the radius."""
        seen: np.ndarray = np.array(list(signs))[self.grid]
        if radius is not None:
            rows, columns = np.indices(self.grid.shape)
            far = np.maximum(abs(rows - self.at[0]), abs(columns - self.at[1])) > radius
            seen = np.where(far, HIDDEN, seen)
        seen[self.at] = SELF
        return seen


def validate(level: Level, pays: float = 0.5) -> Verdict:
    """Checks by search whether a `Level` is solvable, and its largest return; returns a `Verdict`.

    Over cells and gems that are left.

    Args:
        level: with at most some eight gems.
        pays: of a gem.
    """
    gems = [(int(row), int(column)) for row, column in np.argwhere(level.grid == GEM)]
    first = (level.start, frozenset(gems))
    distance, queue = {first: 0}, deque([first])
    height, width = level.grid.shape
    best, reached = 0.0, False
    while queue:
        here, left = state = queue.popleft()
        got = pays * (len(gems) - len(left))
        thing = level.grid[here]
        reached |= thing == GOAL
        best = max(best, got + (thing == GOAL))
        if thing in (GOAL, LAVA) or distance[state] >= level.horizon:
            continue
        for row, column in ((here[0] + a, here[1] + b) for a, b in MOVES):
            if 0 <= row < height and 0 <= column < width and level.grid[row, column] != WALL:
                after = ((row, column), left - {(row, column)})
                if after not in distance:
                    distance[after] = distance[state] + 1
                    queue.append(after)
    issues = () if reached else ("the goal cannot be reached within the horizon",)
    return Verdict(bool(reached), "cumulative" if gems else "binary", float(best), issues)


def repair(level: Level) -> Level:
    """Copy of a `Level` made solvable: a cleared path from start to goal, and a sufficient horizon."""
    grid = level.grid.copy()
    row, column = (int(each) for each in np.argwhere(grid == GOAL)[0])
    here, down = level.start, range(min(row, level.start[0]), max(row, level.start[0]) + 1)
    across = range(min(column, here[1]), max(column, here[1]) + 1)
    for cell in [*((each, here[1]) for each in down), *((row, each) for each in across)]:
        if grid[cell] in (WALL, LAVA):
            grid[cell] = FLOOR
    length = abs(row - here[0]) + abs(column - here[1])
    return replace(level, grid=grid, horizon=max(level.horizon, length + 2))


@dataclass(frozen=True)
class Made:
    """Result of `generate`: valid levels with their largest returns, and how many were repaired or dropped.

    levels: each with its largest return; repaired and dropped: how many were.
    """

    levels: tuple[tuple[Level, float], ...]
    repaired: int
    dropped: int


def generate(description: Description, seeds: Sequence[int]) -> Made:
    """Draws one level of a `Description` per seed and validates it; unsolvable ones are repaired or dropped: `Made`."""
    kept: list[tuple[Level, float]] = []
    repaired = dropped = 0
    for seed in seeds:
        level = draw(description, seed)
        verdict = validate(level, description.pays)
        if not verdict.valid:
            level = repair(level)
            verdict = validate(level, description.pays)
            repaired += verdict.valid
        if verdict.valid:
            kept.append((level, verdict.maximum))
        else:
            dropped += 1
    return Made(tuple(kept), repaired, dropped)
