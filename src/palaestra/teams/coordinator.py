"""`coordinator`: before every step a central seat, which sees what all see, sends each agent a message (HAMMER [119]).

    coordinator(messages=4)      2 bits for each agent and step

Left out: messages of real numbers with the recipient's gradient through them, and texts.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

import numpy as np

from palaestra.envs.conversations import ChatMessage, Conversation, Reader
from palaestra.envs.facts import facts_of
from palaestra.envs.protocol import Action, Env, EnvFactory, Observation, StepResult
from palaestra.errors import EnvError, InputError

DRAWS = 23
"""Number of the stream from which the channel's noise is drawn."""


class CoordinatedEnv:
    """Env wrapper in which central seats `SEAT-AGENT` send each acting agent one of `messages` messages first.

    A step of `env` is two turns: first the seats act, one for each recipient, then the recipients. A seat sees what
    every agent sees (the latest, of agents that do not act) and who the recipient is; an agent sees its own observation
    and its own message. Agents choose their actions themselves. Each agent is paid by `env`; the seats are
    paid the mean over all agents. As arrays: what the recipient sees, what the agents after it see, in the order of
    `env.agents` and round to the first, and a one-hot of the recipient; an agent's own array and a one-hot of its
    message. If an agent has not been seen yet its array is zeros.

    Args:
        env: makes the env.
        messages: how many different messages there are; log2 of it is the width of the channel in bits.
        seat: first part of the names of the central seats.
        noise: chance that a message arrives as one drawn uniformly from all.

    facts: those of `env`; told, the number of the message that arrived; heard and heard_turn, of whom and when.

    Raises:
        InputError: a number is out of range, or the env has an agent of such a name.
    """

    def __init__(self, env: EnvFactory, messages: int = 4, *, seat: str = "coordinator", noise: float = 0.0) -> None:
        self.inner: Env = env()
        if messages < 1 or not 0 <= noise <= 1 or not seat.strip():
            raise InputError(f"coordinator: messages={messages} at least 1, noise={noise} in [0, 1], and a seat's name")
        recipients = tuple(self.inner.agents)
        self.seats = {agent: f"{seat}-{agent}" for agent in recipients}
        if taken := sorted(set(self.seats.values()) & set(recipients)):
            raise InputError(f"coordinator: the env has an agent {taken[0]!r} already; choose another seat=")
        self.noise, self.choices = noise, tuple(f"message {number}" for number in range(messages))
        self.agents = (*self.seats.values(), *recipients)
        self.facts = {**facts_of(self.inner), "told": int, "heard": list[str], "heard_turn": list[int]}
        self.task = ""

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin the episode; the central seats act first."""
        self._rng = np.random.default_rng([seed, DRAWS])
        self._told: dict[str, int] | None = None
        self._turn, self._latest = 0, dict[str, Observation]()
        self._seen = self.inner.reset(seed)
        self.task = self.inner.task
        return self._central()

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Deliver messages, or take the recipients' actions."""
        due = set(self._seen) if self._told is not None else {self.seats[agent] for agent in self._seen}
        if actions.keys() != due or not due:
            raise EnvError(f"actions of {sorted(actions)} were given, but the agents to act are {sorted(due)}")
        self._turn += 1
        if self._told is None:
            return self._deliver(actions)
        told, self._told = self._told, None
        result = self.inner.step(actions)
        shared = sum(value for value in result.rewards.values() if value is not None) / len(self.seats)
        rewards = {**result.rewards, **{self.seats[agent]: shared for agent in told}}
        info = {
            **result.info,
            "told": told,
            "heard": {agent: [self.seats[agent]] for agent in told},
            "heard_turn": {agent: [self._turn - 2] for agent in told},
        }
        self._seen = result.observations
        shown = self._central() if self._seen else {}
        return dataclasses.replace(result, observations=shown, rewards=rewards, info=info)

    def _deliver(self, actions: Mapping[str, Action]) -> StepResult:
        chosen = {agent: self._central_view(agent).index(actions[self.seats[agent]]) for agent in self._seen}
        valid = {self.seats[agent]: number is not None for agent, number in chosen.items()}
        self._told = {}
        for agent, number in chosen.items():
            lost = self._rng.random() < self.noise or number is None
            self._told[agent] = int(self._rng.integers(len(self.choices))) if lost else int(number or 0)
        shown = {agent: self._local_view(seen, self._told[agent]) for agent, seen in self._seen.items()}
        return StepResult(shown, info={"valid": valid})

    def _central(self) -> dict[str, Observation]:
        self._latest |= self._seen
        return {self.seats[agent]: self._central_view(agent) for agent in self._seen}

    def _central_view(self, recipient: str) -> Observation:
        """What all see, and for whom the message is."""
        seen = {agent: self._latest[agent] for agent in self.seats if agent in self._latest}
        text = "\n".join([*(f"{agent} sees: {each.text}" for agent, each in seen.items()), f"message for {recipient}"])
        arrays = [each.array for each in seen.values() if each.array is not None]
        if len(arrays) < len(seen):
            return Observation(text, choices=self.choices)
        empty = np.zeros_like(np.ravel(arrays[0]))
        names = list(self.seats)
        first = names.index(recipient)
        inorder = names[first:] + names[:first]
        parts = [np.ravel(seen[agent].array) if agent in seen else empty for agent in inorder]  # type: ignore[arg-type]
        one = np.arange(len(names)) == first
        return Observation(text, choices=self.choices, array=np.concatenate([*parts, one]).astype(np.float32))

    def _local_view(self, seen: Observation, number: int) -> Observation:
        """One's own observation and message."""
        said = f"the coordinator says: {self.choices[number]}"

        def write(reader: Reader) -> tuple[ChatMessage, ...]:
            *before, last = seen.conversation(reader)
            return (*before, {**last, "content": f"{last['content']}\n{said}"})

        array = None
        if seen.array is not None:
            one = np.arange(len(self.choices)) == number
            array = np.concatenate([np.ravel(seen.array), one]).astype(np.float32)
        told = None if seen.messages is None else Conversation(write)
        return dataclasses.replace(seen, text=f"{seen.text}\n{said}", array=array, messages=told)


def coordinator(env: EnvFactory, messages: int = 4, *, seat: str = "coordinator", noise: float = 0.0) -> EnvFactory:
    """Env factory from another, `env`: a central seat per agent sends it a message first, see `CoordinatedEnv`."""
    factory = functools.partial(CoordinatedEnv, env, messages, seat=seat, noise=noise)
    factory()
    return factory
