"""Episodes that begin with given actions: what the agents chose in those turns is not what is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palaestra.envs.base import Action, Env, EnvFactory, Observation, StepResult
from palaestra.envs.facts import facts_of
from palaestra.errors import InputError


class Prefixed:
    """`env` in which the first turns of a reset seed are those of `forced[seed]`, one action a turn, for who acts then.

    facts: those of the env; hint, whether the turn was forced; hint_action, what was done instead; hint_id, its number
    among the choices.

    Raises:
        InputError: when it is played, a forced action is none of the choices; names it.
    """

    def __init__(self, env: EnvFactory, forced: Mapping[int, Sequence[str]]) -> None:
        self.env: Env = env()
        self.agents, self.task = self.env.agents, ""
        self.facts: dict[str, Any] = {**facts_of(self.env), "hint": bool, "hint_action": str, "hint_id": int}
        self.forced = forced

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin the same episode."""
        self._left = list(self.forced.get(seed, ()))
        self._seen = self.env.reset(seed)
        self.task = self.env.task
        return self._seen

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Do what was forced, as long as there is any."""
        told: dict[str, Any] = {"hint": bool(self._left)}
        if self._left:
            forced = self._left.pop(0)
            numbers = {agent: self._seen[agent].index(forced) for agent in actions if self._seen[agent].choices}
            if None in numbers.values():
                raise InputError(f"the reference {forced!r} is no legal action here")
            actions = {**dict.fromkeys(actions, forced), **numbers}  # type: ignore[dict-item]
            told |= {"hint_action": forced, "hint_id": numbers or None}
        result = self.env.step(actions)
        self._seen = result.observations
        return StepResult(
            result.observations, result.rewards, result.terminated, result.truncated, {**result.info, **told}
        )
