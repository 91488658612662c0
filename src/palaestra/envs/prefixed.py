"""Episodes that begin otherwise: with actions that nobody chose, or with a text before what is seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from palaestra.envs.conversations import ChatMessage, Conversation
from palaestra.envs.facts import facts_of
from palaestra.envs.protocol import Action, Env, EnvFactory, Observation, StepResult
from palaestra.errors import InputError


class Prefixed:
    """Env wrapper (of an env factory): an episode's first actions are those of `forced[seed]`, one per turn.

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
        """Take the forced action instead of the given ones, as long as any is left."""
        told: dict[str, Any] = {"hint": bool(self._left)}
        if self._left:
            forced = self._left.pop(0)
            chosen = {agent: self._seen[agent] for agent in actions if self._seen[agent].choices}
            numbers: dict[str, Any] = {agent: seen.index(forced) for agent, seen in chosen.items()}
            if None in numbers.values():
                raise InputError(f"the reference {forced!r} is no legal action here")
            actions = {**dict.fromkeys(actions, forced), **numbers}
            told |= {"hint_action": forced, "hint_id": numbers or None}
        result = self.env.step(actions)
        self._seen = result.observations
        return StepResult(
            result.observations, result.rewards, result.terminated, result.truncated, {**result.info, **told}
        )


class Reminded:
    """Env wrapper (of an env factory): the text `texts[task]`, if any, precedes every observation of that task.

    facts: those of the env; reminded, whether there was such a text.
    """

    def __init__(self, env: EnvFactory, texts: Mapping[str, str]) -> None:
        self.env: Env = env()
        self.agents, self.task = self.env.agents, ""
        self.facts: dict[str, Any] = {**facts_of(self.env), "reminded": bool}
        self.texts = texts

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin the same episode."""
        seen = self.env.reset(seed)
        self.task = self.env.task
        return self._show(seen)

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the actions."""
        result = self.env.step(actions)
        info = {**result.info, "reminded": self.task in self.texts}
        return replace(result, observations=self._show(result.observations), info=info)

    def _show(self, seen: Mapping[str, Observation]) -> dict[str, Observation]:
        text = self.texts.get(self.task)
        if text is None:
            return dict(seen)
        return {
            agent: replace(each, text=f"{text}\n\n{each.text}", messages=_reminded(each.messages, text))
            for agent, each in seen.items()
        }


def _reminded(messages: Sequence[ChatMessage] | None, text: str) -> Sequence[ChatMessage] | None:
    """The conversation with a text before the first user's: many chat templates refuse two user messages in a row."""
    if isinstance(messages, Conversation):
        talk = messages
        return Conversation(lambda reader: _before_first(talk.for_reader(reader), text))
    return messages and _before_first(messages, text)


def _before_first(messages: Sequence[ChatMessage], text: str) -> tuple[ChatMessage, ...]:
    at = next((place for place, each in enumerate(messages) if each["role"] == "user"), None)
    if at is None:
        return ({"role": "user", "content": text}, *messages)
    asked = {**messages[at], "content": f"{text}\n\n{messages[at]['content']}"}
    return (*messages[:at], asked, *messages[at + 1 :])
