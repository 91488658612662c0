"""`AutomationGrid`: one errand at four levels of automation (those of OS-MAP, arXiv 2507.19132, without a desktop).

L1 the keys are given; L2 only the goal; L3 now and then something pushes the agent aside; L4 a key must be fetched
before the door opens. A 5 × 5 grid with five obstacles, 30 steps. `follow`, `plan_once` and `replan` are scripted play.
"""

from __future__ import annotations

import functools
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError, nearest

LEVELS = ("L1", "L2", "L3", "L4")
MOVES = ("up", "down", "left", "right")
STEPS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
SIZE, OBSTACLES, LIMIT, PUSH = 5, 5, 30, 0.15

Cell = tuple[int, int]


@dataclass
class _AutomationGridState:
    level: str
    blocked: frozenset[Cell]
    at: Cell
    goal: Cell
    key: Cell | None
    script: list[str]
    has_key: bool = False
    time: int = 0


@ENVS.register("native/automation_grid")
class AutomationGrid(NativeEnv):
    """Grid env: `operator` sees the whole grid and walks to the goal; reward 1 if it arrives in time.

    info has the `level` in the end.

    levels: those that are drawn from, or one; the task's name begins with its level.
    """

    agents: tuple[str, ...] = ("operator",)
    facts = {"level": str}

    def __init__(self, levels: str | Sequence[str] = LEVELS) -> None:
        self.levels = (levels,) if isinstance(levels, str) else tuple(levels)
        for level in self.levels or ("",):
            if level not in LEVELS:
                raise InputError(f"AutomationGrid: no level {level!r}{nearest(level, LEVELS)}")

    def begin(self) -> tuple[str, _AutomationGridState]:
        """Draw the level and a grid in which everything can be reached."""
        level = self.levels[int(self.rng.integers(len(self.levels)))]
        cells = [(x, y) for x in range(SIZE) for y in range(SIZE)]
        while True:
            drawn = [cells[int(n)] for n in self.rng.permutation(len(cells))[: OBSTACLES + 3]]
            blocked, (start, goal, key) = frozenset(drawn[:OBSTACLES]), drawn[OBSTACLES:]
            way, detour = shortest(start, goal, blocked), shortest(start, key, blocked)
            if way and detour and shortest(key, goal, blocked):
                break
        state = _AutomationGridState(
            level, blocked, start, goal, key if level == "L4" else None, way if level == "L1" else []
        )
        return f"{level}:{_cells(drawn)}", state

    def look(self) -> dict[str, Observation]:
        """Observation of the operator: the whole grid, and at L1 also the keys to press."""
        state = self.state
        if state.time >= LIMIT or self._arrived():
            return {}
        text = f"{state.level} step {state.time} at {_cells([state.at])} goal {_cells([state.goal])}"
        text += f" walls {_cells(sorted(state.blocked))}"
        if state.key is not None:
            text += f" key {'held' if state.has_key else _cells([state.key])}"
        if state.script:
            text += f" script {' '.join(state.script)}"
        return {"operator": Observation(text, MOVES)}

    def _arrived(self) -> bool:
        state = self.state
        return bool(state.at == state.goal and (state.key is None or state.has_key))

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Make one step; walls stop it, and at L3 a random push may replace it."""
        state, move = self.state, chosen["operator"]
        name = MOVES[move] if move is not None else None
        if state.level == "L3" and self.rng.random() < PUSH:
            name = MOVES[int(self.rng.integers(4))]
        if name is not None:
            state.at = step(state.at, name, state.blocked)
        state.time += 1
        state.has_key |= state.at == state.key
        if not self.look():
            arrived = self._arrived()
            return {"operator": float(arrived)}, {"success": arrived, "level": state.level}
        return {}, {}


def step(at: Cell, move: str, blocked: frozenset[Cell]) -> Cell:
    """The cell (x, y) that one move leads to; unchanged if a blocked cell or the grid's edge stops it."""
    x, y = at[0] + STEPS[move][0], at[1] + STEPS[move][1]
    return (x, y) if 0 <= x < SIZE and 0 <= y < SIZE and (x, y) not in blocked else at


def shortest(start: Cell, goal: Cell, blocked: frozenset[Cell]) -> list[str]:
    """Moves of a shortest path from `start` to `goal` around `blocked` cells, list of str; empty if none or equal."""
    before: dict[Cell, tuple[Cell, str]] = {}
    line = deque([start])
    while line:
        at = line.popleft()
        for move in MOVES:
            then = step(at, move, blocked)
            if then != start and then not in before:
                before[then] = (at, move)
                line.append(then)
    moves: list[str] = []
    at = goal
    while at in before:
        at, move = before[at]
        moves.append(move)
    return moves[::-1]


def _cells(cells: Sequence[Cell]) -> str:
    return " ".join(f"{x},{y}" for x, y in cells)


_GRID = re.compile(r"L(\d) step (\d+) at (\S+) goal (\S+) walls ([\d, ]+?)(?: key (\S+))?(?: script (.+))?$")


@functools.cache
def _read(text: str) -> tuple[int, int, Cell, Cell, frozenset[Cell], Cell | None, tuple[str, ...]]:
    found = _GRID.match(text)
    if found is None:
        raise InputError(f"this is no observation of AutomationGrid: {text}")
    level, time, at, goal, walls, key, script = found.groups()
    key_at = None if key in (None, "held") else _cell(key)
    return int(level), int(time), _cell(at), _cell(goal), frozenset(map(_cell, walls.split())), key_at, tuple(
        (script or "").split()
    )  # fmt: skip


def _cell(text: str) -> Cell:
    x, y = text.split(",")
    return int(x), int(y)


def follow() -> Callable[[Any], str]:
    """Makes a policy function: presses keys that the observation lists, or if none walks straight, ignoring walls.

    (request -> action); no arguments.
    """

    def play(request: Any) -> str:
        _, time, at, goal, _, _, script = _read(request.observation.text)
        if script:
            return script[time % len(script)]
        if at[0] != goal[0]:
            return "right" if goal[0] > at[0] else "left"
        return "down" if goal[1] > at[1] else "up"

    return play


def plan_once() -> Callable[[Any], str]:
    """Makes a policy function (request -> action), no arguments, that plans in the first step and follows it blindly.

    It ignores the key.
    """
    plans: dict[tuple[Cell, frozenset[Cell]], list[str]] = {}

    def play(request: Any) -> str:
        _, time, at, goal, blocked, _, _ = _read(request.observation.text)
        if time == 0:
            plans[goal, blocked] = shortest(at, goal, blocked)
        plan = plans[goal, blocked]
        return plan[time] if time < len(plan) else "up"

    return play


def replan() -> Callable[[Any], str]:
    """Makes a policy function (request -> action), no arguments: a new shortest path at each step, first to the key."""

    def play(request: Any) -> str:
        _, _, at, goal, blocked, key, _ = _read(request.observation.text)
        plan = shortest(at, goal if key is None else key, blocked)
        return plan[0] if plan else "up"

    return play
