"""`Maze`: walk a map from the start to the goal, past lava, doors and messages. What exploration and shaping need.

Maps are text, one sign a cell. Left out: other walkers, chance (only sub-goals are drawn), pictures.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Action, Observation, StepResult
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError, nearest
from palaestra.foundation.registry import load_object
from palaestra.rewards.shaping.mdp import Model

MAPS = {
    "line": "S......G",
    "message": "..m.S...G",
    "lava": "S...../.L..L./....../..LL../L....L/.....G",
    "rooms": "S..#../...#../...D../...#../K..#../...#.G",
}
"""Rows are parted by `/`. # wall, S start, G goal, L lava, K key, D door, m message; anything else is floor."""
STEPS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
Cell = tuple[int, int]


@dataclass
class _MazeState:
    cell: Cell
    key: bool = False
    steps: int = 0
    over: bool = False
    reached: int = 0
    beacons: tuple[Cell, ...] = ()
    hidden: bool = False


@functools.lru_cache
def listed(teacher: str, *rows: str) -> tuple[Cell, ...]:
    """Sub-goal cells (row, column) that a teacher function `module:name` lists for a map's rows; cached per map.

    They are in the teacher's order; cells that are no floor are dropped.
    """
    ask: Callable[[str], str] = load_object(teacher, "Maze: teacher")
    found = [(int(row), int(column)) for row, column in re.findall(r"\((\d+), *(\d+)\)", ask("\n".join(rows)))]
    return tuple((r, c) for r, c in found if r < len(rows) and c < len(rows[0]) and rows[r][c] != "#")


def key_then_door(text: str) -> str:
    r"""Scripted teacher: map text to a text that lists key, door and a cell outside the map as sub-goals.

    >>> key_then_door("S.D.G\nK####")
    'First (1, 0), then (0, 2), then (9, 9).'
    """
    cells = {sign: (r, c) for r, row in enumerate(text.splitlines()) for c, sign in enumerate(row)}
    return f"First {cells['K']}, then {cells['D']}, then (9, 9)."


@ENVS.register("native/maze")
class Maze(NativeEnv):
    """Grid maze env: `walker` sees its cell, key and next sub-goal; the goal pays `pays`, lava ends the episode unpaid.

    It is truncated after `horizon` steps.

    map: a name in `MAPS`, or rows. A map of one row has the moves left and right only. A step into a wall, or a door
    without the key, stays. beacons: signs whose cells are sub-goals, in order; the next one is shown, and each is wrong
    with a chance of 1 - accuracy. hidden: chance that an episode shows none of them, as in play without the list; they
    are completed and told as ever. bonus: what an arrival at a sign tells as the fact `bonus`, not paid. messages:
    what is read there; by default at `m` that one sees something useful. teacher: `module:name` of who lists sub-goals
    instead of `beacons`, a function of the map's text whose answer has cells like (3, 1); asked once for each map.

    facts: place and arrived, cells by number; before and distance, steps to the goal from both, lava and doors or not;
    progress before the step, 1 at the goal; goal, lava, key; message, if the step ended on one; milestone, the number
    of the sub-goal that it completed; bonus. `model()` has the whole process.
    """

    agents: tuple[str, ...] = ("walker",)
    facts = {
        "place": int, "arrived": int, "before": float, "distance": float, "progress": float, "goal": bool, "lava": bool,
        "key": bool, "message": str, "milestone": int, "bonus": float,
    }  # fmt: skip

    def __init__(
        self,
        map: str = "line",
        *,
        horizon: int = 40,
        pays: float = 1.0,
        beacons: str = "",
        accuracy: float = 1.0,
        hidden: float = 0.0,
        bonus: Mapping[str, float] | None = None,
        messages: Mapping[str, str] | None = None,
        teacher: str | None = None,
    ) -> None:
        self.rows = MAPS.get(map, map).split("/")
        self.height, self.width = len(self.rows), len(self.rows[0])
        self.signs = {(r, c): sign for r, row in enumerate(self.rows) for c, sign in enumerate(row)}
        signs = "".join(self.rows)
        if any(len(row) != self.width for row in self.rows) or signs.count("S") != 1 or "G" not in signs:
            raise InputError(f"Maze: map={map!r} needs rows of equal length with one S and a G{nearest(map, MAPS)}")
        chances = 0 <= accuracy <= 1 and 0 <= hidden <= 1
        if horizon < 1 or not chances or len(set(beacons) & set(signs)) < len(beacons):
            raise InputError(f"Maze: {horizon=} >= 1, {accuracy=} and {hidden=} in [0, 1], {beacons=} signs of the map")
        self.horizon, self.pays, self.bonus = horizon, float(pays), dict(bonus or {})
        self.accuracy, self.hidden = accuracy, hidden
        self.messages = dict({"m": "you see something useful"} if messages is None else messages)
        self.start = self._find("S")
        self.beacons = tuple(self._find(sign) for sign in beacons) if teacher is None else listed(teacher, *self.rows)
        self.moves = tuple(STEPS) if self.height > 1 else ("left", "right")
        self.far = self._distances()

    def _find(self, sign: str) -> Cell:
        return next(cell for cell, found in self.signs.items() if found == sign)

    def _distances(self) -> dict[Cell, float]:
        """Steps to the goal from each cell, walls in the way; infinity where there is none."""
        far = dict.fromkeys(self.signs, float("inf"))
        front = [cell for cell, sign in self.signs.items() if sign == "G"]
        far.update(dict.fromkeys(front, 0.0))
        for r, c in front:  # grows
            for down, right in STEPS.values():
                near = (r + down, c + right)
                if self.signs.get(near, "#") != "#" and far[near] == float("inf"):
                    far[near] = far[r, c] + 1
                    front.append(near)
        return far

    def begin(self) -> tuple[str, _MazeState]:
        """Start at the map's start; sub-goals are drawn."""
        floor = [cell for cell, sign in self.signs.items() if sign != "#"]
        wrong = self.rng.random(len(self.beacons)) >= self.accuracy
        drawn = [floor[self.rng.integers(len(floor))] for _ in self.beacons]
        beacons = tuple(other if off else cell for cell, other, off in zip(self.beacons, drawn, wrong, strict=True))
        hidden = self.hidden > 0 and bool(self.rng.random() < self.hidden)
        return "maze", _MazeState(self.start, beacons=beacons, hidden=hidden)

    def look(self) -> dict[str, Observation]:
        """Observation of the walker: its cell, what it holds, and the next sub-goal."""
        state = self.state
        if state.over or state.steps >= self.horizon:
            return {}
        beacon = None if state.hidden else (*state.beacons, None)[state.reached]
        return {"walker": self._seen(state.cell, state.key, beacon)}

    def _seen(self, cell: Cell, key: bool, beacon: Cell | None = None) -> Observation:
        seek = "" if not self.beacons else f", seek {beacon}" if beacon else ", nothing to seek"
        return Observation(f"at row {cell[0]} column {cell[1]}{' with the key' * key}{seek}", choices=self.moves)

    def _after(self, cell: Cell, key: bool, action: int | None) -> tuple[Cell, bool]:
        down, right = (0, 0) if action is None else STEPS[self.moves[action]]
        near = (cell[0] + down, cell[1] + right)
        sign = self.signs.get(near, "#")
        cell = cell if sign == "#" or (sign == "D" and not key) else near
        return cell, key or self.signs[cell] == "K"

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Make one step."""
        state, old = self.state, self.state.cell
        state.cell, state.key = self._after(old, state.key, chosen["walker"])
        state.steps += 1
        sign = self.signs[state.cell]
        state.over = sign in "GL"
        number = state.reached
        done = number < len(state.beacons) and state.cell == state.beacons[number]
        state.reached += done
        longest = max(self.far[self.start], 1.0)
        info: dict[str, Any] = {
            "place": old[0] * self.width + old[1],
            "arrived": state.cell[0] * self.width + state.cell[1],
            "before": self.far[old],
            "distance": self.far[state.cell],
            "progress": max(1 - self.far[old] / longest, 0.0),
            "goal": sign == "G",
            "lava": sign == "L",
            "key": state.key,
            "message": self.messages.get(sign),
            "milestone": number if done else None,
            "bonus": float(self.bonus.get(sign, 0.0)),
        }
        if state.over or state.steps >= self.horizon:
            info["success"] = sign == "G"
        return ({"walker": self.pays} if sign == "G" else {}), info

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the action; an episode that ran out of steps is truncated, not terminated."""
        result = super().step(actions)
        cut = result.terminated and not self.state.over
        return dataclasses.replace(result, terminated=result.terminated and not cut, truncated=cut)

    def model(self) -> Model:
        """The maze as an exact Markov decision process without horizon; goal and lava end it.

        Raises:
            InputError: sub-goals are shown, which are drawn anew.
        """
        if self.beacons:
            raise InputError("Maze: with beacons there is no model of it; leave them out")
        keys = (False, True) if "K" in self.signs.values() else (False,)
        places = [(cell, key) for key in keys for cell, sign in self.signs.items() if sign not in "#GL"]
        number = {place: at for at, place in enumerate(places)}
        shape = len(places), len(self.moves)
        transitions, reward, bonus = np.zeros((*shape, len(places))), np.zeros(shape), np.zeros(shape)
        for place, at in number.items():
            for action in range(len(self.moves)):
                after = self._after(*place, action)
                sign = self.signs[after[0]]
                reward[at, action] = self.pays * (sign == "G")
                bonus[at, action] = self.bonus.get(sign, 0.0)
                if after in number:
                    transitions[at, action, number[after]] = 1.0
        start = np.eye(len(places))[number[self.start, False]]
        seen = [self._seen(*place).key() for place in places]
        return Model(seen, self.moves, transitions, start, {"reward": reward, "bonus": bonus})
