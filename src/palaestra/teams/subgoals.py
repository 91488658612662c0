"""`subgoals`: the task is split into places on the way, of which one at a time is in the prompt and is checked.

    subgoals(every=3)           every third place of the env's list, and the last one
    subgoals(only_last=True)    the final goal alone
    subgoals(shuffled=0.3)      in three of ten episodes they stand in random order, as a poor planner would have them

An env lists the subgoals of the episode that it has begun, `subgoals() -> list[str]`, the last of which is the task's
own goal, and says whether one is met now, `met(subgoal) -> bool`. Left out: subgoals that a model writes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from palaestra.envs.conversations import ChatMessage, Conversation, Reader
from palaestra.envs.facts import facts_of
from palaestra.envs.protocol import Action, EnvFactory, Observation, StepResult
from palaestra.errors import EnvError, InputError

SHUFFLE = 37
"""Number of the stream from which the order of shuffled subgoals is drawn."""


class Subgoals:
    """Env wrapper (of an env factory): agents see its current subgoal, the next once it is met; rewards stay the env's.

    The env has `subgoals() -> list[str]` and `met(subgoal) -> bool`.

    The segments of VSC-RL [192] (arXiv 2502.07949). After every step the current subgoal is checked, and only this one.
    The last one stays until the episode ends. The env's rewards and `success` are as they were.

    facts: those of the env; subgoal, the one that was read; segment, how many were met before, from 0; subgoal_done,
    whether the check passed after the turn.

    Args:
        env: Factory of an env with `subgoals()` and `met()`.
        every: Each so many-th subgoal is taken, and the last one.
        only_last: The final goal alone is taken.
        shuffled: Share of the episodes, by their seed, whose subgoals, the last one apart, are in random order.

    Raises:
        InputError: A number is out of range, or the env lists no subgoals.
        EnvError: When it is played, an agent reads arrays, in which no subgoal can stand.
    """

    def __init__(self, env: EnvFactory, *, every: int = 1, only_last: bool = False, shuffled: float = 0.0) -> None:
        self.env: Any = env()
        if every < 1 or not 0 <= shuffled <= 1:
            raise InputError(f"subgoals: every={every} must be at least 1, shuffled={shuffled} from 0 to 1")
        if not (hasattr(self.env, "subgoals") and hasattr(self.env, "met")):
            raise InputError(
                f"subgoals: {type(self.env).__name__} has no subgoals() -> list[str] and met(subgoal) -> bool"
            )
        self.every, self.only_last, self.shuffled = every, only_last, shuffled
        self.agents, self.task = tuple(self.env.agents), ""
        self.facts: dict[str, Any] = {**facts_of(self.env), "subgoal": str, "segment": int, "subgoal_done": bool}

    @property
    def tolerates(self) -> bool:
        """Whether the env below goes on without an agent whose policy failed."""
        return bool(getattr(self.env, "tolerates", False))

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin the episode with its first subgoal."""
        seen = self.env.reset(seed)
        self.task, self.segment = self.env.task, 0
        listed = list(self.env.subgoals())
        taken = [*listed[:-1][self.every - 1 :: self.every], listed[-1]]
        self.listed = taken[-1:] if self.only_last else self._moved(taken, np.random.default_rng([seed, SHUFFLE]))
        return self._show(seen)

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the actions in the env, then check whether the subgoal is met."""
        current = self.listed[self.segment]
        told: dict[str, Any] = {"subgoal": current, "segment": self.segment}
        result: StepResult = self.env.step(actions)
        done = bool(self.env.met(current))
        self.segment = min(self.segment + done, len(self.listed) - 1)
        info = {**result.info, **told, "subgoal_done": done}
        return dataclasses.replace(result, observations=self._show(result.observations), info=info)

    def _moved(self, taken: list[str], rng: np.random.Generator) -> list[str]:
        """The subgoals; in a share of the episodes all but the last one in random order."""
        if rng.random() >= self.shuffled:
            return taken
        return [*(taken[place] for place in rng.permutation(len(taken) - 1)), taken[-1]]

    def _show(self, seen: Mapping[str, Observation]) -> dict[str, Observation]:
        said = f"subgoal: {self.listed[self.segment]}"
        return {agent: _with(each, said) for agent, each in seen.items()}


def _with(seen: Observation, said: str) -> Observation:
    """The observation with a line after its text, and after the last message."""
    if seen.array is not None:
        raise EnvError("subgoals: the env shows arrays, in which no subgoal can stand; take one that shows text")
    talk = seen.messages
    if talk is None:
        return dataclasses.replace(seen, text=f"{seen.text}; {said}")

    def write(reader: Reader) -> tuple[ChatMessage, ...]:
        *before, last = talk.for_reader(reader) if isinstance(talk, Conversation) else tuple(talk)
        return (*before, {**last, "content": f"{last['content']}\n\n{said}"})

    return dataclasses.replace(seen, text=f"{seen.text}; {said}", messages=Conversation(write))


def subgoals(env: EnvFactory, *, every: int = 1, only_last: bool = False, shuffled: float = 0.0) -> EnvFactory:
    """Env factory from another, `env`: the current subgoal, of those it lists, stands in observations; see `Subgoals`.

    In a recipe `subgoals(every=3)`.
    """
    factory = functools.partial(Subgoals, env, every=every, only_last=only_last, shuffled=shuffled)
    factory()
    return factory
