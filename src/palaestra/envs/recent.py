"""`with_recent`: what an agent saw in its last turns, in its array beside what it sees now.

A policy that keeps nothing between its turns can so act on its last turns. Left out: texts and messages.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from palaestra.envs.facts import facts_of
from palaestra.envs.making import make
from palaestra.envs.protocol import Action, Env, EnvFactory, Observation, StepResult
from palaestra.errors import EnvError, InputError


class RecentEnv:
    """Env wrapper (of an env factory): arrays stack each agent's last `steps` observations; see `with_recent`."""

    def __init__(self, env: EnvFactory, steps: int) -> None:
        self.inner: Any = env()
        self.agents: tuple[str, ...] = self.inner.agents
        self.facts: dict[str, Any] = dict(facts_of(self.inner))
        self.task = ""
        self.steps = steps
        self._past: dict[str, list[np.ndarray]] = {}

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Start the episode of the env below; nothing was seen before."""
        self._past = {}
        seen = self.inner.reset(seed)
        self.task = self.inner.task
        return self._joined(seen)

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the actions."""
        result: StepResult = self.inner.step(actions)
        return replace(result, observations=self._joined(result.observations))

    def _joined(self, seen: Mapping[str, Observation]) -> dict[str, Observation]:
        return {agent: replace(each, array=self._window(agent, each)) for agent, each in seen.items()}

    def _window(self, agent: str, seen: Observation) -> np.ndarray:
        if seen.array is None:
            raise EnvError(f"recent: {agent!r} sees no array; it needs an env that shows arrays")
        now = np.ravel(seen.array).astype(np.float32)
        past = self._past.setdefault(agent, [])
        past.append(np.concatenate([[np.float32(1)], now]))
        del past[: -self.steps]
        blank = np.zeros((self.steps - len(past), len(now) + 1), np.float32)
        return np.concatenate([blank, *[each[None] for each in past]]).ravel()


def with_recent(env: EnvFactory, steps: int) -> EnvFactory:
    """Wraps an env factory: observation arrays stack the agent's last `steps` turns, zeros before the first.

    The array is float32[steps · (1 + features)], the oldest turn first. Each turn begins with 1, a turn before the
    agent's first one is all zeros.

    Raises:
        InputError: steps is below 1.
        EnvError: when it is played, an observation has no array.
    """
    if steps < 1:
        raise InputError(f"recent: steps={steps} must be at least 1")
    return functools.partial(RecentEnv, env, steps)


def recent(env: str, steps: int = 16, **options: Any) -> Env:
    """Makes an env (no factory) by its registered name `env`, whose arrays stack the last `steps` turns.

    See `with_recent`.
    """
    return with_recent(make(env, **options), steps)()
