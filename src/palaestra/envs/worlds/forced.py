"""Counterfactuals: the same episode with one action replaced.

What others do afterwards, minus what they do without it and paired by seed, is their response: sellers who punish a
price cut keep prices up by agreement, those who do not are merely dear.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from palaestra.envs.facts import facts_of
from palaestra.envs.protocol import Action, Env, EnvFactory, Observation, StepResult
from palaestra.errors import InputError, nearest


class Forced:
    """Env wrapper (of an env, no factory) that replaces `agent`'s action on its `turn`-th turn (from 0) by `action`."""

    def __init__(self, env: Env, agent: str, turn: int, action: Action) -> None:
        if agent not in env.agents:
            raise InputError(f"forced: no agent {agent!r}{nearest(agent, env.agents)}")
        self.env, self.agent, self.turn, self.action = env, agent, turn, action
        self.agents, self.task, self.facts = env.agents, "", facts_of(env)
        self._acted = 0

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin the same episode."""
        self._acted = 0
        seen = self.env.reset(seed)
        self.task = self.env.task
        return seen

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the actions, with the forced one on its turn."""
        if self.agent in actions:
            if self._acted == self.turn:
                actions = {**actions, self.agent: self.action}
            self._acted += 1
        return self.env.step(actions)


def forced(factory: EnvFactory, agent: str, turn: int, action: Action) -> EnvFactory:
    """Wraps an env factory: its envs replace one action of one agent, on one turn (see `Forced`).

    Raises:
        InputError: the env has no such agent.
    """
    Forced(factory(), agent, turn, action)
    return functools.partial(_make, factory, agent, turn, action)


def _make(factory: EnvFactory, agent: str, turn: int, action: Action) -> Env:
    return Forced(factory(), agent, turn, action)
