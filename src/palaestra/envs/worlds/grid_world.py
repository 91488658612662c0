"""Grid worlds to explore, and three tests derived from them: masked frames, planning, change detection (WorldTest).

A torus where four keys move by an unknown assignment and a wind blows at every k-th step. `ExploredGrid` is the whole
protocol as one env of the registry. Left out: the published worlds, which need their own interpreter.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.envs.protocol import Env, Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.exact.change import change_score
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.envs.worlds.two_phase import TwoPhase
from palaestra.errors import InputError, nearest

DIRECTIONS = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])
KEYS = ("a", "b", "c", "d")
OPTIONS = 4
MOVES = (*KEYS, *(f"option {n + 1}" for n in range(OPTIONS)), "changed")
PERIODS = (2, 5)


@dataclass(frozen=True)
class Rules:
    """Data of the rules of motion of a grid world (a torus): direction of each key, wind and its period.

    controls: the direction of each key. wind: direction, and the period with which it blows.
    """

    size: int
    controls: tuple[int, ...]
    wind: int
    period: int

    def move(self, place: np.ndarray, key: int, time: int) -> np.ndarray:
        """The place on the torus after pressing `key` at a time, wind included."""
        step = DIRECTIONS[self.controls[key]] + (DIRECTIONS[self.wind] if time % self.period == 0 else 0)
        return np.asarray((place + step) % self.size)

    def mutate(self) -> Rules:
        """The rules with the controls rotated by one, so that every key does something else."""
        return Rules(self.size, self.controls[1:] + self.controls[:1], self.wind, self.period)


def draw_rules(rng: np.random.Generator, size: int = 6) -> Rules:
    """Random `Rules` of motion of a grid world: shuffled controls, a wind and its period."""
    controls = tuple(int(d) for d in rng.permutation(4))
    return Rules(size, controls, int(rng.integers(4)), int(rng.choice(PERIODS)))


@dataclass
class _GridWorldState:
    place: np.ndarray
    time: int
    rules: Rules
    over: bool = False
    frames: str = ""
    options: tuple[tuple[int, int], ...] = ()
    right: int = -1  # the right option, the goal's column, or the frame of change
    goal: np.ndarray | None = None


def _mask(keys: bool, options: bool = False, changed: bool = False) -> np.ndarray:
    return np.array([keys] * len(KEYS) + [options] * OPTIONS + [changed])


class GridWorld(NativeEnv):
    """Reward-free grid env: `explorer` sees place and time and learns how its keys and the wind move it.

    size: of a side, at least 2. worlds: draw from only so many; None: a new one for every seed.
    """

    agents: tuple[str, ...] = ("explorer",)
    extra = ""
    length = 10_000

    def __init__(self, size: int = 6, worlds: int | None = None) -> None:
        if size < 2 or (worlds is not None and worlds < 1):
            raise InputError(f"GridWorld: size={size} must be at least 2, worlds={worlds} at least 1, or None")
        self.size, self.worlds = size, worlds

    def begin(self) -> tuple[str, _GridWorldState]:
        """Draw the rules; the explorer starts at 0,0."""
        number = int(self.rng.integers(2**31 if self.worlds is None else self.worlds))
        rules = draw_rules(np.random.default_rng(number), self.size)
        return f"grid:{self.size}:{number}", _GridWorldState(np.zeros(2, int), 0, rules)

    def look(self) -> dict[str, Observation]:
        """Observation of the explorer: its place, and the time modulo 10, which all winds divide."""
        state = self.state
        if state.over or state.time >= self.length:
            return {}
        x, y = state.place
        return {"explorer": Observation(f"at {x},{y} time {state.time % 10}{self._more()}", MOVES, self._legal())}

    def _more(self) -> str:
        return ""

    def _legal(self) -> np.ndarray:
        return _mask(keys=True)

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Walk; an invalid key stands still."""
        self._walk(chosen["explorer"])
        return {}, {}

    def _walk(self, key: int | None) -> None:
        state = self.state
        if key is not None and key < len(KEYS):
            state.place = state.rules.move(state.place, key, state.time)
        state.time += 1


class _Test(GridWorld):
    """A test in the world with given rules; its score is the reward of its last step."""

    facts = {"score": float}

    def __init__(self, rules: Rules) -> None:
        super().__init__(rules.size)
        self.rules = rules

    def begin(self) -> tuple[str, _GridWorldState]:
        place = self.rng.integers(self.size, size=2)
        return "test", _GridWorldState(place, int(self.rng.integers(10)), self.rules)

    def _end(self, score: float) -> tuple[dict[str, float], dict[str, Any]]:
        self.state.over = True
        return {"explorer": score}, {"score": score, "success": bool(score > 0.5)}


class MaskedFrame(_Test):
    """Test env of a grid world's rules: choose the hidden last place of a random walk among four; paid 1 if right."""

    def begin(self) -> tuple[str, _GridWorldState]:
        """Draw the frames and the options."""
        task, state = super().begin()
        frames = []
        for _ in range(4):
            key = int(self.rng.integers(len(KEYS)))
            frames.append(f"{state.place[0]},{state.place[1]} time {state.time % 10} {KEYS[key]}")
            state.place, state.time = state.rules.move(state.place, key, state.time), state.time + 1
        truth = (int(state.place[0]), int(state.place[1]))
        near = {tuple(int(x) for x in (state.place + step) % self.size) for step in _AROUND} - {truth}
        wrong = [sorted(near)[i] for i in self.rng.permutation(len(near))[: OPTIONS - 1]]
        state.right = int(self.rng.integers(OPTIONS))
        options: Any = (*wrong[: state.right], truth, *wrong[state.right :])
        state.options, state.frames = options, " ".join(f"({frame})" for frame in frames)
        return task, state

    def look(self) -> dict[str, Observation]:
        """Observation of the explorer: all frames but the last, and the options to choose from."""
        if self.state.over:
            return {}
        options = " ".join(f"{n + 1}:{x},{y}" for n, (x, y) in enumerate(self.state.options))
        text = f"frames {self.state.frames} then one of {options}"
        return {"explorer": Observation(text, MOVES, _mask(keys=False, options=True))}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Score the choice."""
        return self._end(float(chosen["explorer"] == len(KEYS) + self.state.right))


_AROUND = np.array([[x, y] for x in (-2, -1, 0, 1, 2) for y in (-2, -1, 0, 1, 2)])


class Planning(_Test):
    """Test env of a grid world's rules: reach the goal within 4 × size steps; paid 1 if reached, else 0."""

    def begin(self) -> tuple[str, _GridWorldState]:
        """Draw a goal elsewhere."""
        task, state = super().begin()
        while state.goal is None or (state.goal == state.place).all():
            state.goal = self.rng.integers(self.size, size=2)
        state.right = state.time + 4 * self.size
        return task, state

    def _more(self) -> str:
        goal = self.state.goal
        return f" goal {goal[0]},{goal[1]}"

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Walk until the goal or the end."""
        self._walk(chosen["explorer"])
        state = self.state
        reached = bool((state.place == state.goal).all())
        return self._end(float(reached)) if reached or state.time >= state.right else ({}, {})


class ChangeDetection(_Test):
    """Test env of a grid world: its controls change at a frame from 10 to 30; saying `changed` pays `change_score`."""

    def begin(self) -> tuple[str, _GridWorldState]:
        """Draw the frame of change."""
        task, state = super().begin()
        state.time, state.right = 0, int(self.rng.integers(10, 31))
        return task, state

    def _legal(self) -> np.ndarray:
        return _mask(keys=True, changed=True)

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Walk until `changed` is said, at most 100 frames."""
        state, action = self.state, chosen["explorer"]
        if action == len(MOVES) - 1:
            return self._end(change_score(state.time, state.right))
        if state.time + 1 == state.right:
            state.rules = state.rules.mutate()
        self._walk(action)
        return self._end(change_score(None, state.right)) if state.time >= 100 else ({}, {})


TESTS: dict[str, type[_Test]] = {"mask": MaskedFrame, "plan": Planning, "change": ChangeDetection}


def derive(world: Any, test: str) -> Env:
    """Makes the test env "mask", "plan" or "change" with the rules of a grid world env's current episode."""
    return TESTS[test](world.state.rules)


@ENVS.register("native/explored_grid")
class ExploredGrid(TwoPhase):
    """Two-phase env: explore a grid world unpaid, then a `test` on it: "mask" (a hidden frame), "plan" or "change"."""

    facts = {**TwoPhase.facts, **_Test.facts}

    def __init__(
        self, test: str = "plan", *, explore: int = 50, size: int = 6, worlds: int | None = None, history: bool = True
    ) -> None:
        if test not in TESTS:
            raise InputError(f"ExploredGrid: test={test!r}{nearest(test, TESTS)}")
        world = functools.partial(GridWorld, size, worlds)
        super().__init__(world, functools.partial(derive, test=test), explore=explore, history=history)
