"""`Halves`: a maze of which each of two agents sees the half that the other does not; a move counts if both make it.

The collaborative maze of [60] (arXiv 2511.02687), and the conditions that it is compared with: one agent with the whole
map, or with both halves. Left out: a model that reads the path off a free conversation; words are read instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError, nearest

MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1), "wait": (0, 0)}
Condition = Literal["joint", "solo", "solo_halves"]
Cell = tuple[int, int]


@dataclass
class _HalvesState:
    rows: list[str]
    maps: dict[str, list[str]]
    far: dict[Cell, int]
    cell: Cell
    goal: Cell
    steps: int = 0
    over: bool = False
    said: dict[str, str] = field(default_factory=dict)


def distances(rows: list[str], goal: Cell) -> dict[Cell, int]:
    """Steps to cell `goal` from each cell of a map (list of str, `#` a wall) that can reach it, {(row, column): n}."""
    far, front = {goal: 0}, [goal]
    for r, c in front:  # grows
        for down, right in list(MOVES.values())[:4]:
            near = (r + down, c + right)
            inside = 0 <= near[0] < len(rows) and 0 <= near[1] < len(rows[0])
            if inside and near not in far and rows[near[0]][near[1]] != "#":
                far[near] = far[r, c] + 1
                front.append(near)
    return far


def _read(action: str) -> tuple[str, str]:
    """Move and speech: the first word and the rest, or of free wording the move that is named last and all of it.

    >>> _read("up wall on my left"), _read("Not left, let us go up!")
    (('up', 'wall on my left'), ('up', 'Not left, let us go up!'))
    """
    word, _, text = action.partition(" ")
    if word in MOVES:
        return word, text
    named = [each for each in re.findall(r"[a-z]+", action.lower()) if each in MOVES]
    return (named[-1] if named else ""), action


@ENVS.register("native/halves")
class Halves(NativeEnv):
    """Maze env for two: each sees half of the map, moves count if equal; both paid 1 at the goal, a wall ends it.

    They fail into a wall, or if it takes too long.

    An action is a move (up, down, left, right, wait) and, after a space, what is said to the other; or free wording, in
    which the move that is named last counts, and all of it is said. Without `talk` it is a choice of moves. Moves that
    differ are not made. Read: where they are, the goal, one's map (? is hidden) and what was said last. facts: agreed;
    distance, steps to the goal after the move. Success: the goal, which pays everybody 1.

    Args:
        n: rows and columns. density: share of walls. least: steps that the shortest path has at least.
        condition: joint; or one agent `a` with the whole map (solo), or with both halves (solo_halves).
        talk: whether they may say something. horizon: steps, default 4 n.

    Raises:
        InputError: an option is out of range.
    """

    facts = {"agreed": bool, "distance": float}

    def __init__(
        self,
        *,
        n: int = 6,
        density: float = 0.3,
        least: int = 4,
        condition: Condition = "joint",
        talk: bool = True,
        horizon: int | None = None,
    ) -> None:
        if n < 2 or not 0 <= density <= 0.6 or not 1 <= least <= 2 * n - 2:
            raise InputError(f"Halves: {n=} >= 2, {density=} from 0 to .6, {least=} from 1 to {2 * n - 2}")
        if condition not in get_args(Condition):
            raise InputError(f"Halves: {condition=}{nearest(str(condition), get_args(Condition))}")
        self.n, self.density, self.least, self.condition, self.talk = n, density, least, condition, talk
        self.horizon = 4 * n if horizon is None else horizon
        self.agents: tuple[str, ...] = ("a", "b") if condition == "joint" else ("a",)

    def begin(self) -> tuple[str, _HalvesState]:
        """Draw a maze with a reachable, distant goal; every other cell is hidden from one of the two."""
        while True:
            walls = self.rng.random((self.n, self.n)) < self.density
            start, goal = (tuple(each) for each in self.rng.integers(self.n, size=(2, 2)).tolist())
            walls[start] = walls[goal] = False
            rows = ["".join("#" if wall else "." for wall in row) for row in walls]
            far = distances(rows, goal)
            if far.get(start, 0) >= self.least:
                break
        seen = self.rng.random((self.n, self.n)) < 0.5
        seen[start] = seen[goal] = True
        halves = [self._masked(rows, seen), self._masked(rows, ~seen | self._at(start) | self._at(goal))]
        maps = {"a": [halves[0]], "b": [halves[1]]}
        if self.condition != "joint":
            maps = {"a": ["/".join(rows)] if self.condition == "solo" else halves}
        number = int.from_bytes(np.packbits(np.append(walls, seen)).tobytes(), "big")
        return f"halves:{start}:{goal}:{number:x}", _HalvesState(rows, maps, far, start, goal)

    def _at(self, cell: Cell) -> np.ndarray:
        found = np.zeros((self.n, self.n), bool)
        found[cell] = True
        return found

    @staticmethod
    def _masked(rows: list[str], seen: np.ndarray) -> str:
        return "/".join("".join(sign if ok else "?" for sign, ok in zip(r, s)) for r, s in zip(rows, seen.tolist()))

    def look(self) -> dict[str, Observation]:
        """Both see their half of the map and the other's message, at once."""
        state = self.state
        if state.over or state.steps >= self.horizon:
            return {}
        place = f"at {state.cell[0]},{state.cell[1]} goal {state.goal[0]},{state.goal[1]}"
        choices = None if self.talk else tuple(MOVES)
        seen = {}
        for agent in self.agents:
            told = [f"{place} map {' map '.join(state.maps[agent])}"]
            told += [text for other, text in state.said.items() if other != agent and text]
            seen[agent] = Observation(" | ".join(told), choices)
        return seen

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Take both moves and messages; the two move only if both chose the same move."""
        state, moves, valid = self.state, {}, {}
        for agent, action in chosen.items():
            word, text = _read(tuple(MOVES)[action] if isinstance(action, int) else action or "")
            valid[agent] = word in MOVES
            moves[agent] = word if word in MOVES else "wait"
            if text.strip():
                state.said[agent] = text.strip()
        agreed = len(set(moves.values())) == 1
        down, right = MOVES[next(iter(moves.values()))] if agreed else (0, 0)
        state.cell, state.steps = (state.cell[0] + down, state.cell[1] + right), state.steps + 1
        crashed = state.cell not in state.far
        done = state.cell == state.goal
        state.over = done or crashed
        info: dict[str, Any] = {"agreed": agreed, "valid": valid}
        if not crashed:
            info["distance"] = float(state.far[state.cell])
        if state.over or state.steps >= self.horizon:
            info["success"] = done
        return dict.fromkeys(self.agents, float(done)), info
