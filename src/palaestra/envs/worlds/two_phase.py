"""`TwoPhase`: explore a world without reward, then be tested in one derived from it (WorldTest, arXiv 2510.19788).

Any env with choices can be the world, and whatever can act can be tested. Left out: free-text worlds.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from palaestra.envs.protocol import Action, Env, EnvFactory, Observation, StepResult
from palaestra.errors import EnvError, InputError

Derive = Callable[[Any], Env]
"""From the world, as it was reset, to the env of the test; it may read the world's rules."""

TOOLS = ("reset", "test")


class TwoPhase:
    """Env wrapper with two phases: reward-free exploration of a world, then the paid test env of `derive(world)`.

    Phase 1: at most `explore` steps in the world, all rewards 0; any agent may `reset` it or go to the `test`.

    Phase 2: the derived env, whose rewards count. A world that ends begins anew, as it did first. In the end info has
    `explored` and `resets`. history: the text shows everything that was seen and done while exploring.
    """

    facts: Mapping[str, type] = {"explored": int, "resets": int}
    """A subclass adds what its test tells."""

    def __init__(self, world: EnvFactory, derive: Derive, *, explore: int = 300, history: bool = True) -> None:
        if explore < 0:
            raise InputError(f"TwoPhase: explore={explore}, expected 0 or more steps")
        self.world, self.derive, self.explore, self.history = world(), derive, explore, history
        self.agents = self.world.agents
        self.task = ""
        self._test: Env | None = None
        self._turn: dict[str, Observation] = {}

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin with exploration, or with the test if `explore` is 0."""
        self._seed = self._test_seed = seed
        self._steps, self._resets, self._test = 0, 0, None
        self._log: dict[str, list[str]] = {agent: [] for agent in self.agents}
        seen = self.world.reset(seed)
        self.task = self.world.task if self.explore else f"{self.world.task}:{seed}"
        return self._show(seen if self.explore else self._begin_test())

    def _begin_test(self) -> Mapping[str, Observation]:
        self._test = self.derive(self.world)
        return self._test.reset(self._test_seed)

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take a step in the world or in the test."""
        if actions.keys() != self._turn.keys():
            raise EnvError(f"actions of {sorted(actions)} were given, but the agents to act are {sorted(self._turn)}")
        if self._test is not None:
            result = self._test.step(self._within(actions))
            info = {**result.info, "valid": self._valid(actions)}
            if not result.observations:
                info |= {"explored": self._steps, "resets": self._resets}
            return replace(result, observations=self._show(result.observations), info=info)
        valid = self._valid(actions)
        chosen = {
            self._turn[agent].legal[0] if not valid[agent] else self._name(agent, action)
            for agent, action in actions.items()
        } & set(TOOLS)
        for agent, seen in self._turn.items():
            self._log[agent].append(f"{seen.text.rsplit(chr(10), 1)[-1]} -> {actions[agent]}")
        if "test" in chosen:
            return StepResult(self._show(self._begin_test()), info={"valid": valid})
        self._steps += 1
        if "reset" in chosen:
            self._resets += 1
            seen_next = self.world.reset(self._seed)
        else:
            seen_next = self.world.step(self._within(actions)).observations or self.world.reset(self._seed)
        return StepResult(
            self._show(seen_next if self._steps < self.explore else self._begin_test()), info={"valid": valid}
        )

    def _name(self, agent: str, action: Action) -> str:
        seen = self._turn[agent]
        index = seen.index(action)
        return "" if index is None or seen.choices is None else seen.choices[index]

    def _valid(self, actions: Mapping[str, Action]) -> dict[str, bool]:
        return {agent: self._turn[agent].index(action) is not None for agent, action in actions.items()}

    def _within(self, actions: Mapping[str, Action]) -> dict[str, Action]:
        """The actions in the ids of the inner env; a tool or an illegal action stays illegal there."""
        found: dict[str, Action] = {}
        for agent, action in actions.items():
            index = self._turn[agent].index(action)
            found[agent] = -1 if index is None or index >= len(self._turn[agent].choices or ()) - 2 else index
        return found

    def _show(self, observations: Mapping[str, Observation]) -> dict[str, Observation]:
        exploring = self._test is None
        self._turn = {}
        for agent, seen in observations.items():
            if seen.choices is None:
                raise EnvError(f"TwoPhase: {agent!r} is asked for free text; worlds and tests need choices")
            inner = np.ones(len(seen.choices), bool) if seen.mask is None else seen.mask
            text = f"{'explore' if exploring else 'test'} {seen.text}"
            if self.history:
                text = "\n".join([*self._log[agent], text])
            mask = np.concatenate([inner, [exploring, exploring]])
            self._turn[agent] = Observation(text, seen.choices + TOOLS, mask, seen.array)
        return dict(self._turn)

    def snapshot(self) -> Any:
        """Snapshot of the episode, for `restore`."""
        return copy.deepcopy({name: value for name, value in vars(self).items() if name != "derive"})

    def restore(self, snapshot: Any, seed: int | None = None) -> Mapping[str, Observation]:
        """Restore a snapshot; seed: draw future chance in a native world, and the test, anew."""
        vars(self).update(copy.deepcopy(snapshot))
        inner: Any = self.world if self._test is None else self._test
        if seed is not None:
            self._test_seed = seed
            if hasattr(inner, "rng"):
                inner.rng = np.random.default_rng(seed)
        return dict(self._turn)


def two_phase(world: EnvFactory, derive: Derive, *, explore: int = 300, history: bool = True) -> EnvFactory:
    """Env factory: a world of factory `world` is explored unpaid, then the test env of function `derive(world)`."""
    return functools.partial(TwoPhase, world, derive, explore=explore, history=history)
