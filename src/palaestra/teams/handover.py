"""`handover`: one begins in a seat, and after some turns another one goes on in it.

Relay inference ([60], arXiv 2511.02687): a stronger agent plays the first turns, a weaker one the rest. Any env, any
seat; both are policies like all others, and can be trained. Left out: handing back.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from palaestra.envs.facts import facts_of
from palaestra.envs.protocol import Action, Env, EnvFactory, Observation, StepResult
from palaestra.errors import EnvError, InputError, nearest


class HandoverEnv:
    """Env wrapper (of an env factory): agent `to` replaces `seat` after its first `after` turns; then both are paid.

    Both are paid what the seat earns.

    facts: those of the env. What the seat earns goes to both of them who have had a turn by then.

    Raises:
        InputError: there is no such seat, `to` is one already, or `after` is below 0.
    """

    def __init__(self, env: EnvFactory, seat: str, to: str, after: int) -> None:
        self.inner: Env = env()
        if seat not in self.inner.agents:
            raise InputError(f"handover: seat={seat!r} is no agent of the env{nearest(seat, self.inner.agents)}")
        if to in self.inner.agents or not to.strip() or after < 0:
            raise InputError(f"handover: to={to!r} must be a new name and after={after} at least 0")
        self.seat, self.to, self.after = seat, to, after
        self.agents = tuple(
            name for agent in self.inner.agents for name in ((agent, to) if agent == seat else (agent,))
        )
        self.facts, self.task = dict(facts_of(self.inner)), ""

    @property
    def tolerates(self) -> bool:
        """Whether the env below goes on without an agent whose policy failed."""
        return bool(getattr(self.inner, "tolerates", False))

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin the episode with `seat` in its place."""
        self._turns = 0
        self._acted: dict[str, None] = {}
        observations = self.inner.reset(seed)
        self.task = self.inner.task
        return self._show(observations)

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the actions, the acting player's as that of the seat."""
        if actions.keys() != self._asked:
            raise EnvError(f"actions of {sorted(actions)} were given, but the agents to act are {sorted(self._asked)}")
        here = self._name
        result = self.inner.step({self.seat if agent == here else agent: action for agent, action in actions.items()})
        if here in actions:
            self._turns += 1
            self._acted[here] = None
        rewards = {agent: value for agent, value in result.rewards.items() if agent != self.seat}
        if self.seat in result.rewards:
            rewards |= dict.fromkeys(self._acted or [here], result.rewards[self.seat])
        info = {name: self._renamed(value, here) for name, value in result.info.items()}
        return StepResult(self._show(result.observations), rewards, result.terminated, result.truncated, info)

    @property
    def _name(self) -> str:
        return self.seat if self._turns < self.after else self.to

    def _show(self, observations: Mapping[str, Observation]) -> dict[str, Observation]:
        shown = {self._name if agent == self.seat else agent: seen for agent, seen in observations.items()}
        self._asked = shown.keys()
        return shown

    def _renamed(self, value: Any, here: str) -> Any:
        """Rename the seat in results to the player who sat there."""
        if isinstance(value, Mapping) and self.seat in value:
            return {here if agent == self.seat else agent: each for agent, each in value.items()}
        return value


def handover(env: EnvFactory, seat: str, to: str, after: int = 1) -> EnvFactory:
    """Env factory from another, `env`: agent `to` plays for `seat` after its first `after` turns; checked at once."""
    factory = functools.partial(HandoverEnv, env, seat, to, after)
    factory()
    return factory
