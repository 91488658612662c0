"""The environment protocol: several agents, dict in, dict out.

The agents that appear in the returned observations act next: one of them in a turn-based game, several in a
simultaneous one. An env that ends returns no observations. Left out on purpose: spaces, vectorisation, rendering.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from palaestra.envs.conversations import WORDS, ChatMessage, Conversation, Reader, choosing
from palaestra.envs.replies import bare_name, read_reply, schema

Action = str | int
"""Text, or the index of one of `Observation.choices`."""


class NoAction(str):
    """Empty text (a str) in place of an action whose policy failed; only for envs with `tolerates = True`.

    error: why there is none, as it will stand in the column `error` of that turn.
    """

    error: str

    def __new__(cls, error: str) -> NoAction:
        """An empty text with the reason beside it."""
        made = super().__new__(cls, "")
        made.error = error
        return made


class LikelyAction(int):
    """Action id (an int) with the policy's log-probability; only given to envs with `weighs = True`.

    logprob: its logarithm, at most 0.
    """

    logprob: float

    def __new__(cls, action: int, logprob: float) -> LikelyAction:
        """The index with the log-probability beside it."""
        made = super().__new__(cls, action)
        made.logprob = logprob
        return made


@dataclass(frozen=True, slots=True)
class Observation:
    """Data that one agent observes before it acts: text, choices and mask, feature array, chat messages, tools.

    text: everything the agent is told, history included; also the readable form of `array`.
    choices: names of *all* actions of a discrete action space (position = action id); None if the action is free text.
    mask: bool[len(choices)], the legal ones; None if all are legal.
    array: float32 features for policies that do not read text.
    messages: chat messages for chat models, `{"role", "content"}`, of assistants also `tool_calls`, as endpoints take
    them; a `Conversation` is written when somebody reads it; None means one user message with `text`, and the legal
    choices if there are any. A later observation of the same agent that begins with these and goes on with the agent's
    answer (role "assistant") continues the conversation, and its tokens, too.
    tools: schemas of the functions that may be called, `{"type": "function", "function": {"name", "description",
    "parameters"}}`; they go to the chat template, or to the endpoint.
    """

    text: str
    choices: tuple[str, ...] | None = None
    mask: np.ndarray | None = None
    array: np.ndarray | None = None
    messages: Sequence[ChatMessage] | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    fields: tuple[str, ...] = ()

    def conversation(self, reader: Reader = WORDS) -> tuple[ChatMessage, ...]:
        """Chat messages of the observation, as this reader gets them; made of text and choices if there are none."""
        if isinstance(self.messages, Conversation):
            return self.messages.for_reader(reader)
        if self.messages is not None:
            return tuple(self.messages)
        return choosing(self.text, self.legal, reader)

    @property
    def schema(self) -> Mapping[str, Any] | None:
        """JSON schema of the reply, for endpoints that hold a model to one; None where any text is an action."""
        if self.choices is not None:
            return schema(self.fields or ("action",), self.legal)
        return schema(self.fields) if self.fields else None

    @property
    def legal(self) -> tuple[str, ...]:
        """Names of the legal actions; empty if the action is free text."""
        if self.choices is None:
            return ()
        if self.mask is None:
            return self.choices
        return tuple(name for name, ok in zip(self.choices, self.mask, strict=True) if ok)

    def index(self, action: Action) -> int | None:
        """The id of `action` if it is legal here, else None. Text is matched without case and outer white space.

        Text that is no name is read as a chat model's reply, whose last line is `Action: NAME`, with or without quotes,
        emphasis and a full stop.
        """
        if self.choices is None:
            return None
        if isinstance(action, str):
            found = self._place(action.strip())
            if found is None:
                said = read_reply(action, self.fields[-1] if self.fields else "action").text
                places = (self._place(name) for name in (said, bare_name(said)))
                found = next((place for place in places if place is not None), None)
        else:
            found = int(action) if 0 <= int(action) < len(self.choices) and int(action) == action else None
        if found is None or (self.mask is not None and not self.mask[found]):
            return None
        return found

    def _place(self, name: str) -> int | None:
        choices = self.choices or ()
        if name in choices:  # some games have names that differ in case only
            return choices.index(name)
        return next((i for i, each in enumerate(choices) if each.casefold() == name.casefold()), None)

    def key(self) -> int:
        """64-bit hash of what was seen (the anchor state): equal iff the observation is equal, in every process.

        A `Conversation` says what `text` says, and does not count.
        """
        messages = () if isinstance(self.messages, Conversation) else self.messages or ()
        if self.array is None and not messages and len(self.text) <= SHORT:
            return _key_of(self.text)
        digest = hashlib.blake2b(self.text.encode("utf-8", "surrogatepass"), digest_size=8)
        if self.array is not None:
            digest.update(np.ascontiguousarray(self.array).tobytes())
        for message in messages:
            digest.update(f"\0{message['role']}\0{message.get('content')}".encode(errors="surrogatepass"))
            if calls := message.get("tool_calls"):
                digest.update(json.dumps(calls, sort_keys=True, default=str).encode())
        return int.from_bytes(digest.digest(), "little")


SHORT = 256
"""Letters of a text whose key is remembered: games and groups show the same ones over and over."""


@functools.lru_cache(4096)
def _key_of(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


@dataclass(frozen=True, slots=True)
class StepResult:
    """Data that `Env.step` returns: next observations and rewards by agent, terminated, truncated, info.

    observations: who acts next and what they see; empty iff the episode is over.
    rewards: what agents received since the last step; agents that are not named received 0. A missing score is None.
    info: `valid`: {agent: bool} for the actions just taken (absent = valid); `success`: bool or {agent: bool} at the
    end; the env's facts, for all who acted or as {agent: value}; anything else is kept as the row's metadata.
    """

    observations: Mapping[str, Observation]
    rewards: Mapping[str, float | None] = field(default_factory=dict)
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Env(Protocol):
    """Protocol of a multi-agent environment: `reset(seed)`, `step(actions)`; equal seed and actions repeat an episode.

    agents: every agent that can ever act. task: name of the task that the last `reset` chose; trials of one task are
    compared with each other, so equal tasks must have equal names in every process.

    An env may also have `facts`, a mapping of names to types: these entries of `StepResult.info` become typed columns
    of the table (see `palaestra.envs.facts`), which rewards and credit then find by name. A fact `out` of type bool
    says for whom it is over by the rules: the rows of that agent are `terminated`, also if others are cut off later.

    If a policy fails, the episode ends with its error. An env with `tolerates = True` plays on: it is given a
    `NoAction` for that agent, and raises a PolicyError if it cannot do without. An env with `weighs = True` is given
    `LikelyAction` for choices of policies that tell log-probabilities.
    """

    agents: tuple[str, ...]
    task: str

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Start the episode that `seed` names and return the first observations."""

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the actions of exactly the agents that were last observed; returns a `StepResult`."""


EnvFactory = Callable[[], Env]
"""Makes a fresh env. A rollout calls it once per concurrent episode."""
