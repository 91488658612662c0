"""`Workshop`: things that are made of other things, and goals that name them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

GOALS = 2**60
"""Reset seeds from here on stand for lists of goals."""
MOST = 3
"""Goals of such a list."""
ANYTHING = "anything"


@dataclass
class _WorkshopState:
    goals: tuple[int, ...]
    ends: bool
    made: set[int] = field(default_factory=set)
    at: int = 0
    since: int = 0
    steps: int = 0


@ENVS.register("native/workshop")
class Workshop(NativeEnv):
    """Goal-conditioned crafting env: `maker` makes one thing a step, higher ones need two lower; 1 at the goal.

    Things of the first of `levels` levels are made of nothing.

    Each level has half as many things as the one below, and the last one has one. Of what each is made is drawn from
    `draw`. A thing that lacks something is not made. A goal names one thing or several, "t3 and t7", and holds when all
    of them were made. The maker sees the goal and how many steps ago it was set, so that what leads to a goal can be
    done again after another one.

    A drawn episode has one thing for its goal, the same chance for each, and ends when the goal holds, or after `steps`
    steps. Episodes for exploration have a list of goals, each set when the one before holds, and then anything, up to
    the end; the last of the list is the goal that was imagined. They are named by seeds: `seed_of(goals)`, at most
    three, of which none is no goal at all. `compose` gives the goal of several, `asked` what is seen of one.

    facts: goal, what was asked for in this step; achieved, things that were made now and never before in the episode;
    imagined, the last goal of the list; held, whether it holds after the step.
    """

    agents: tuple[str, ...] = ("maker",)
    facts = {"goal": str, "achieved": list[str], "imagined": str, "held": bool}

    def __init__(self, *, levels: int = 4, steps: int = 20, draw: int = 0) -> None:
        if not 1 <= levels <= 4 or steps < 1:
            raise InputError(f"Workshop: levels={levels} in 1 to 4, steps={steps} >= 1")
        rng, below = np.random.default_rng(draw), list(range(2 ** (levels - 1)))
        self.things, self.steps = 2**levels - 1, steps
        self.needs: dict[int, set[int]] = {}
        """Of what a thing is made."""
        while len(below) > 1:
            pairs = rng.permutation(below).reshape(-1, 2).tolist()
            below = [below[-1] + 1 + place for place in range(len(pairs))]
            self.needs |= {thing: set(pair) for thing, pair in zip(below, pairs, strict=True)}
        self.choices = tuple(f"make t{thing}" for thing in range(self.things))

    def compose(self, goals: Sequence[str]) -> str:
        """The goal that requires all of these goals."""
        return self._name(sum({1 << each for goal in goals for each in self._things(goal)}))

    def seed_of(self, goals: Sequence[str]) -> int:
        """The reset seed of an episode with these goals in order.

        Raises:
            InputError: they are more than three, or one is no goal.
        """
        if len(goals) > MOST:
            raise InputError(f"Workshop: {len(goals)} goals; at most {MOST}")
        code = 0
        for goal in reversed(goals):
            code = (code << self.things) + sum(1 << each for each in self._things(goal))
        return GOALS + code

    def asked(self, goal: str, step: int) -> str:
        """The observation text of a goal, so many steps after it was set."""
        return f"goal: {goal}; step {step}"

    def _things(self, goal: str) -> list[int]:
        found = [each[1:] for each in goal.split(" and ")]
        if not all(each.isdecimal() and int(each) < self.things for each in found):
            raise InputError(f"Workshop: {goal!r} is no goal; goals are things such as 't0', or 't0 and t3'")
        return [int(each) for each in found]

    def _name(self, code: int) -> str:
        return " and ".join(f"t{each}" for each in range(self.things) if code >> each & 1)

    def reset(self, seed: int) -> Any:
        """Begin the episode of `seed`."""
        self._listed: tuple[int, ...] | None = None
        if seed >= GOALS:
            code, mask = seed - GOALS, (1 << self.things) - 1
            parts = [code >> (self.things * place) & mask for place in range(MOST)]
            self._listed = tuple(each for each in parts if each)
        return super().reset(seed)

    def begin(self) -> tuple[str, _WorkshopState]:
        """Start with the seed's goals, or a drawn one."""
        drawn = (1 << int(self.rng.integers(self.things)),)
        goals = drawn if self._listed is None else self._listed
        names = [self._name(each) for each in goals]
        return "goal " + (", then ".join(names) or ANYTHING), _WorkshopState(goals, self._listed is None)

    def look(self) -> dict[str, Observation]:
        """Observation of the maker: the goal, and the steps since it was set."""
        state = self.state
        if state.steps == self.steps or (state.ends and state.at == len(state.goals)):
            return {}
        return {"maker": Observation(self.asked(self._goal(), state.since), choices=self.choices)}

    def _goal(self) -> str:
        state = self.state
        return self._name(state.goals[state.at]) if state.at < len(state.goals) else ANYTHING

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Make a thing, if what it is made of is there."""
        state, thing = self.state, chosen["maker"]
        goal, new = self._goal(), []
        if thing is not None and thing not in state.made and self.needs.get(thing, set()) <= state.made:
            state.made.add(thing)
            new = [f"t{thing}"]
        state.steps, state.since = state.steps + 1, state.since + 1
        code = sum(1 << each for each in state.made)
        while state.at < len(state.goals) and state.goals[state.at] & ~code == 0:
            state.at, state.since = state.at + 1, 0
        imagined = state.goals[-1] if state.goals else 0
        held = bool(imagined) and imagined & ~code == 0
        info = {"goal": goal, "achieved": new, "imagined": self._name(imagined) or None, "held": held}
        if self.look():
            return {}, info
        return {"maker": float(held)}, info | {"success": held}
