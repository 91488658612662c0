"""Memory by an agent's own summary, as in ERA [184]: it reads what it last wrote down, not all that happened.

An action holds an answer, which the wrapped env gets, and a summary, which stands before the agent's next observation:

    reads     The key is 7.            says    look | key 7
    reads     key 7 | A locked door.   says    open 7 | key 7, door open

What an agent writes down is part of its action, so it is trained like everything that it says. Left out: snapshots, and
summaries that somebody else writes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import deque
from collections.abc import Mapping
from typing import Any

from palaestra.envs import make
from palaestra.envs.conversations import ChatMessage, Conversation, Reader, first_words, opening
from palaestra.envs.facts import facts_of
from palaestra.envs.protocol import Action, EnvFactory, NoAction, Observation, StepResult
from palaestra.envs.replies import read_reply
from palaestra.errors import EnvError, InputError
from palaestra.teams.instructions import ASKS, TEMPLATES, Instructions

SEPARATOR = " | "
TAKEN = " > "
"""Stands between an earlier observation and the answer to it."""


class SelfSummaryEnv:
    """Env wrapper (of an env factory or name): agents remember only their own last summary, as recipes' `self_summary`.

    Actions become free text, `answer | summary`, and observations lose their choices and arrays. An action without a
    separator keeps the summary as it was; one with nothing behind it forgets it. A number is no answer: the env gets
    empty text, and the action is not valid. facts: those of the env; summary; answer, what the env was given.

    Args:
        env: makes the env, or its registered name. options: of a name.
        cumulative: the env's text holds all that the agent was told before; what it has read already is cut off.
        window: so many earlier turns of the agent stay between summary and observation, each as it was shown, with the
            answer to it (ERA shows a few recent steps).
        separator: stands between the parts of what is read and said.
        longest: longer summaries are cut to so many words and signs; None: they are not.
        instruction: Jinja template, the system prompt of chat models instead of the shipped one (`{{ default }}`),
            after the env's own; other policies do not see it.

    Raises:
        InputError: an argument is out of range, or there is no such env.
    """

    def __init__(
        self,
        env: EnvFactory | str,
        *,
        options: Mapping[str, Any] | None = None,
        cumulative: bool = False,
        window: int = 0,
        separator: str = SEPARATOR,
        longest: int | None = None,
        instruction: str | None = None,
    ) -> None:
        if window < 0 or (longest is not None and longest < 1):
            raise InputError(f"self_summary: window={window} must be at least 0, longest={longest} at least 1 or null")
        if not separator.strip():
            raise InputError(f"self_summary: separator={separator!r} must not be blank")
        if options and not isinstance(env, str):
            raise InputError("self_summary: options= are for an env that is given by its name")
        self.inner = make(env, **(options or {}))() if isinstance(env, str) else env()
        self.agents, self.task = tuple(self.inner.agents), ""
        self.facts = {**facts_of(self.inner), "summary": str, "answer": str}
        self._cumulative, self._separator, self._longest = cumulative, separator, longest
        self._window = window
        given = None if instruction is None else {"*": instruction}
        self._instructions = Instructions("self_summary", dict.fromkeys(self.agents, ""), given, best=window or None)

    @property
    def tolerates(self) -> bool:
        """Whether the env below goes on without an agent whose policy failed."""
        return bool(getattr(self.inner, "tolerates", False))

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin the episode of `seed` with empty summaries."""
        self._summaries = dict.fromkeys(self.agents, "")
        self._told = dict.fromkeys(self.agents, "")
        self._new: dict[str, str] = {}
        self._recent: dict[str, deque[str]] = {agent: deque(maxlen=self._window) for agent in self.agents}
        observations = self.inner.reset(seed)
        self.task = self.inner.task
        return self._show(observations)

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the answers in the env, and keep the summaries for the agents' next observations."""
        if actions.keys() != self._new.keys():
            raise EnvError(f"actions of {sorted(actions)} were given, but the agents to act are {sorted(self._new)}")
        answers: dict[str, Action] = {}
        mark = self._separator.strip()
        for agent, action in actions.items():
            answer, found, summary = _parts(action, mark) if isinstance(action, str) else ("", "", "")
            if found:  # one line without separators, so that the agent can tell the parts of what it reads
                line = " ".join(summary.replace(mark, " ").split())
                self._summaries[agent] = line if self._longest is None else first_words(line, self._longest)
            answers[agent] = action if isinstance(action, NoAction) else answer.strip()
            self._recent[agent].append(self._new[agent] + TAKEN + answer.strip())
        result = self.inner.step(answers)
        valid = dict(result.info.get("valid", {})) | {
            a: False for a, said in actions.items() if not isinstance(said, str)
        }
        summaries = {agent: self._summaries[agent] for agent in actions}
        info = {**result.info, "valid": valid, "answer": answers, "summary": summaries}
        return dataclasses.replace(result, observations=self._show(result.observations), info=info)

    def _show(self, observations: Mapping[str, Observation]) -> dict[str, Observation]:
        self._new = {agent: self._unread(agent, seen.text) for agent, seen in observations.items()}
        return {agent: self._observation(agent, seen) for agent, seen in observations.items()}

    def _unread(self, agent: str, text: str) -> str:
        if not self._cumulative:
            return text
        told, self._told[agent] = self._told[agent], text
        if not text.startswith(told):
            raise EnvError(
                f"self_summary: cumulative=True, but the text of {agent!r} does not begin with what it read before "
                f"({told[:40]!r}...); leave cumulative out"
            )
        return text[len(told) :].strip()

    def _observation(self, agent: str, seen: Observation) -> Observation:
        summary, recent, new = self._summaries[agent], list(self._recent[agent]), self._new[agent]
        text = self._separator.join([*([summary] if summary else []), *recent, new])
        own = [str(message["content"]) for message in seen.messages or () if message["role"] == "system"]

        def write(reader: Reader) -> tuple[ChatMessage, ...]:
            told = {"summary": summary, "recent": recent, "text": new, "legal": seen.legal, "ask": "summary"}
            asked = TEMPLATES.render("remember", told | {"structured": reader.structured})
            return opening("\n\n".join([*own, self._instructions.system(agent)]), asked)

        return Observation(text, messages=Conversation(write), fields=ASKS["summary"])


def _parts(action: str, mark: str) -> tuple[str, str, str]:
    """Answer and summary, and between them whether there is one: parted by the mark, or lines of a chat model."""
    summary = read_reply(action, "summary", until=("answer",))
    if summary.form in ("json", "line"):
        return read_reply(action).text, mark, summary.text
    return action.partition(mark)


def self_summary(env: EnvFactory | str, **options: Any) -> EnvFactory:
    """Env factory from `env`, a factory or name: agents remember only own summaries; options of `SelfSummaryEnv`.

    >>> env = self_summary("roles/search")()
    >>> env.reset(0).keys() == set(env.agents)
    True
    """
    factory = functools.partial(SelfSummaryEnv, env, **options)
    factory()
    return factory
