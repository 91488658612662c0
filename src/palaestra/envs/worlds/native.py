"""Base class of the native worlds: reads actions, shows observations, snapshots and restores episodes.

A world keeps its options in attributes that never change and everything else in one value, `state`. Its three methods
say how an episode begins, what the agents see, and what their actions do.
"""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from palaestra.envs.conversations import TEMPLATES, ChatMessage, Conversation, Reader, action_request, opening
from palaestra.envs.protocol import Action, Observation, StepResult
from palaestra.envs.replies import read_reply, without_thinking
from palaestra.errors import EnvError

Chosen = Mapping[str, Any]
"""What each agent did: the id of its choice, its text where the action is free, None if it is illegal."""


class NativeEnv(ABC):
    """Base class of the package's own envs: subclasses define `begin`, `look`, `play`; it can snapshot and restore.

    See `palaestra.play.monte_carlo`.

    facts: what `play` tells beside rewards. state: the episode, everything that changes; whatever is drawn comes from
    `rng`. prompt: name of a template in `envs/prompts` with the rules, the system prompt of chat models; it knows the
    world as `env` and the `agent`. Replies to it end with a line `Action: …`. with_thinking: whether `play` gets of
    free text also what the agent thinks first, up to `</think>`; for worlds that show an agent its own replies.
    """

    agents: tuple[str, ...]
    prompt: str | None = None
    with_thinking = False
    task: str = ""
    facts: Mapping[str, type] = {}
    state: Any = None
    rng: np.random.Generator
    _turn: Mapping[str, Observation] | None = None

    @abstractmethod
    def begin(self) -> tuple[str, Any]:
        """Start an episode: the task's name and the initial state."""

    @abstractmethod
    def look(self) -> dict[str, Observation]:
        """Observations of the agents that act next, from the state alone; empty iff the episode is over."""

    @abstractmethod
    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Apply the agents' actions to the state; returns rewards and info of this step."""

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin the episode of `seed`."""
        self.rng = np.random.default_rng(seed)
        self.task, self.state = self.begin()
        self._turn = self._look()
        return dict(self._turn)

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the actions of exactly the agents that were observed."""
        turn = self._turn or {}
        if actions.keys() != turn.keys() or not turn:
            raise EnvError(f"actions of {sorted(actions)} were given, but the agents to act are {sorted(turn)}")
        chosen = {agent: _read(actions[agent], seen, self.with_thinking) for agent, seen in turn.items()}
        rewards, info = self.play(chosen)
        self._turn = self._look()
        valid = {agent: action is not None for agent, action in chosen.items()} | info.pop("valid", {})
        return StepResult(dict(self._turn), rewards, terminated=not self._turn, info={"valid": valid, **info})

    def snapshot(self) -> Any:
        """Snapshot of the episode, for `restore`."""
        return copy.deepcopy((self.task, self.state, self.rng))

    def restore(self, snapshot: Any, seed: int | None = None) -> Mapping[str, Observation]:
        """Restore a snapshot of an env with the same options; seed: draw future chance anew."""
        self.task, self.state, self.rng = copy.deepcopy(snapshot)
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self._turn = self._look()
        return dict(self._turn)

    def _look(self) -> dict[str, Observation]:
        """With the rules, where chat models are told them."""
        seen = self.look()
        if self.prompt is None:
            return seen
        return {
            agent: dataclasses.replace(each, messages=self._told(agent, each), fields=each.fields or ("action",))
            for agent, each in seen.items()
        }

    def _told(self, agent: str, seen: Observation) -> Conversation:
        def write(reader: Reader) -> tuple[ChatMessage, ...]:
            rules = TEMPLATES.render(str(self.prompt), {"env": self, "agent": agent})
            return opening(rules, action_request(seen.text, seen.legal, reader, speech="message" in seen.fields))

        return Conversation(write)


def _read(action: Action, seen: Observation, with_thinking: bool) -> int | str | None:
    if seen.choices is not None:
        return seen.index(action)
    if not isinstance(action, str):
        return None
    if seen.fields == ("action",):
        return read_reply(action, "action").text
    return action.strip() if with_thinking else without_thinking(action)
