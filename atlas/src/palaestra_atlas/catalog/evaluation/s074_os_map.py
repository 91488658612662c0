"""[74] OS-MAP (arXiv 2507.19132): a matrix of levels says which ability is missing; the mean does not.

Four levels of automation on a grid instead of desktops: L1 the steps are given, L2 only the goal, L3 the agent is
pushed aside, L4 a key comes before the door. Three scripted agents: one follows steps, one plans once, one plans at
every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import polars as pl
from scipy.sparse.csgraph import shortest_path

from palaestra.evaluation.pivot import matrix_table
from palaestra_atlas.reproductions import Outcome, reproduction

SIDE, OBSTACLES, STEPS, TASKS, PUSH = 5, 5, 30, 400, 0.15
CELLS = SIDE * SIDE
MOVES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])
LEVELS = ("L1", "L2", "L3", "L4")
AGENTS = ("follows steps", "plans once", "plans always")


def neighbours() -> np.ndarray:
    """int[cell, move]: where a move leads without obstacles; into a wall it leads nowhere."""
    place = np.stack(np.divmod(np.arange(CELLS), SIDE), axis=1)
    target = np.clip(place[:, None] + MOVES, 0, SIDE - 1)
    return np.asarray(target[..., 0] * SIDE + target[..., 1])


STEP = neighbours()


class World:
    """A grid with obstacles, and the distances on it."""

    def __init__(self, rng: np.random.Generator) -> None:
        while True:  # until start, key and door can reach each other
            cells = rng.permutation(CELLS)
            self.free = np.ones(CELLS, bool)
            self.free[cells[:OBSTACLES]] = False
            self.start, self.key, self.door = cells[OBSTACLES : OBSTACLES + 3].tolist()
            links = np.zeros((CELLS, CELLS))
            links[np.arange(CELLS)[:, None], np.where(self.free[STEP], STEP, np.arange(CELLS)[:, None])] = 1
            links *= self.free[:, None] * self.free
            np.fill_diagonal(links, 0)
            self.distance = shortest_path(links, unweighted=True)
            if np.isfinite(self.distance[self.start, [self.key, self.door]]).all():
                return

    def move(self, cell: int, move: int) -> int:
        """Where it leads."""
        target = int(STEP[cell, move])
        return target if self.free[target] else cell

    def plan(self, cell: int, goal: int) -> list[int]:
        """Moves of a shortest path."""
        moves = []
        while cell != goal:
            best = int(np.argmin([self.distance[self.move(cell, m), goal] for m in range(4)]))
            moves.append(best)
            cell = self.move(cell, best)
        return moves


def straight(cell: int, goal: int) -> list[int]:
    """Steps by the book: down or up, then left or right, as if there were no obstacles."""
    down, right = (int(g) - int(c) for g, c in zip(divmod(goal, SIDE), divmod(cell, SIDE)))
    return [1 if down > 0 else 0] * abs(down) + [3 if right > 0 else 2] * abs(right)


@cache
def drawn(seed: int) -> tuple[World, np.ndarray, np.ndarray]:
    """A world, and for each step whether and where the agent is pushed."""
    rng = np.random.default_rng(seed)
    return World(rng), rng.random(STEPS), rng.integers(4, size=STEPS)


def succeeds(agent: str, level: str, seed: int) -> bool:
    """One task."""
    world, luck, aside = drawn(seed)
    pushed = (luck < PUSH) & (level == "L3")
    cell, has_key = world.start, level != "L4"
    if agent == "follows steps" and level in ("L2", "L4"):
        script = straight(cell, world.door)  # nobody gave it the steps
    else:
        script = world.plan(cell, world.door)
    for step in range(STEPS):
        if agent == "plans always":
            goal = world.door if has_key else world.key
            move = world.plan(cell, goal)[0]
        elif step < len(script):
            move = script[step]
        else:
            return False
        cell = world.move(cell, int(aside[step]) if pushed[step] else move)
        has_key |= cell == world.key
        if cell == world.door and has_key:
            return True
    return False


@reproduction(
    74,
    claim="Success by level tells three agents apart that lack different abilities: following steps fails at planning, "
    "planning once fails when pushed or when the order matters, planning at every step fails nowhere.",
    baseline="one mean over all tasks",
    criterion="L1 is solved by all; L2 by both planners and by the follower in < .8; L3 and L4 by the last alone in "
    "all, by planning once in < .9 and < .4; every difference to 1 has an interval below 1",
)
def measure(seeds: Sequence[int]) -> Outcome:
    """400 tasks per level, the same for every agent."""
    measured: dict[str, float] = {}
    cells = {}
    for agent in AGENTS:
        rows = [
            {"run": "run", "task": f"{level} {n}", "trial": 0, "level": level, "agent": agent,
             "success": succeeds(agent, level, 10_000 * (seeds[0] + 1) + TASKS * i + n)}
            for i, level in enumerate(LEVELS) for n in range(TASKS)
        ]  # fmt: skip
        table = matrix_table(pl.DataFrame(rows), rows="agent", columns="level")
        for row in table.filter(pl.col("row") == agent).iter_rows(named=True):
            cells[agent, row["column"]] = (row["mean"], row["high"])
            measured[f"{agent.replace(' ', '_')}_{row['column']}"] = row["mean"]
    mean = {key: value[0] for key, value in cells.items()}
    follower, once, always = AGENTS
    holds = all(mean[agent, "L1"] == 1 for agent in AGENTS) and all(mean[always, level] == 1 for level in LEVELS)
    holds &= mean[follower, "L2"] < 0.8 and mean[once, "L2"] == 1 and mean[once, "L3"] < 0.9 and mean[once, "L4"] < 0.4
    holds &= all(cells[once, level][1] < 1 for level in ("L3", "L4")) and cells[follower, "L2"][1] < 1
    return Outcome(measured, bool(holds))
