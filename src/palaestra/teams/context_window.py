"""Histories that must fit: what an agent is shown of a long conversation, and what is left out, in the table.

System messages, the first and the last message of a user and the latest messages always stay. What is between goes turn
by turn, an answer together with the results that it brought, oldest first. One cut goes far below the budget, so that
the turns after it extend what is shown, and their tokens are kept. Left out: snapshots, and conversations without
messages, which are shown as they are; `self_summary` lets an agent write its memory itself.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from palaestra.envs import make
from palaestra.envs.conversations import WORDS, Conversation, Reader
from palaestra.envs.facts import facts_of
from palaestra.envs.protocol import Action, EnvFactory, Observation, StepResult
from palaestra.errors import InputError, nearest
from palaestra.foundation.registry import load_object

METHODS = ("drop", "summarise", "clear")
Message = Mapping[str, Any]


def digest(messages: Sequence[Message]) -> str:
    r"""A short text of chat messages, one line of at most 80 characters each.

    >>> digest([{"role": "tool", "content": "The red mill\nkeeps 37 sacks."}])
    'tool: The red mill keeps 37 sacks.'
    """
    lines = [f"{m['role']}: {' '.join(content(m).split())}" for m in messages]
    return "\n".join(line if len(line) <= 80 else line[:79] + "…" for line in lines)


def content(message: Message) -> str:
    """The text of a chat message dict, its tool calls appended as `name(arguments)`."""
    calls = [f"{c['function']['name']}({c['function'].get('arguments')})" for c in message.get("tool_calls") or ()]
    return " ".join([str(message.get("content") or ""), *calls]).strip()


@dataclass
class _View:
    """An agent's view of its conversation.

    Attributes:
        messages: messages delivered so far, oldest first.
        cut: their indices that were left out.
        facts: columns of this turn.
    """

    messages: tuple[Message, ...] = ()
    cut: set[int] = field(default_factory=set)
    summary: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


class ContextWindowEnv:
    """Env wrapper (of an env factory or name): cuts each agent's conversation to `budget` tokens, as `context_window`.

    facts: those of the env, and of each turn dropped and summarised, places of messages that it did not see, or saw
    only as a summary or by their size; shown_tokens and history_tokens, with and without the cut, as `count` counts;
    cut, whether it was cut anew for this turn, so that its prompt cannot extend the last one (`prefix` is "anew").

    Args:
        env: makes the env, or its registered name. options: of a name.
        budget: most tokens that are shown. down_to: how few a cut leaves, if it can; default: half of the budget.
        keep: so many latest messages always stay, and those of the turn that they belong to.
        method: "drop" says how many messages are left out; "summarise" says what they were; "clear" keeps answers and
            calls, and leaves out what tools and others said.
        summarise: of "summarise", from messages to text, or `module:function`; default: their beginnings.
        count: from text to tokens, or `module:function`; default: as the policy that reads counts where the env's
            messages are written for it, else words and signs (`palaestra.envs.conversations.words`).

    Raises:
        InputError: an argument is out of range, or there is no such env.
    """

    def __init__(
        self,
        env: EnvFactory | str,
        *,
        options: Mapping[str, Any] | None = None,
        budget: int = 2000,
        down_to: int | None = None,
        keep: int = 2,
        method: str = "drop",
        summarise: Callable[[Sequence[Message]], str] | str = digest,
        count: Callable[[str], int] | str | None = None,
    ) -> None:
        down_to = budget // 2 if down_to is None else down_to
        if not 0 < down_to <= budget or keep < 1:
            raise InputError(f"context_window: 0 < down_to={down_to} <= budget={budget} and keep={keep} of at least 1")
        if method not in METHODS:
            raise InputError(f"context_window: method={method!r}{nearest(method, METHODS)}")
        self.inner = make(env, **(options or {}))() if isinstance(env, str) else env()
        self.agents, self.task = tuple(self.inner.agents), ""
        own = {"dropped": list[int], "summarised": list[int], "shown_tokens": int, "history_tokens": int, "cut": bool}
        self.facts = {**facts_of(self.inner), **own}
        self._budget, self._down_to, self._keep, self._method = budget, down_to, keep, method
        self._summarise = load_object(summarise, "summarise") if isinstance(summarise, str) else summarise
        self._count = load_object(count, "count") if isinstance(count, str) else count

    @property
    def tolerates(self) -> bool:
        """Whether the env below goes on without an agent whose policy failed."""
        return bool(getattr(self.inner, "tolerates", False))

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Start the episode of `seed`; nothing is cut yet."""
        self._views = {agent: _View() for agent in self.agents}
        self._unread: dict[str, Conversation] = {}
        observations = self.inner.reset(seed)
        self.task = self.inner.task
        return {agent: self._show(agent, seen) for agent, seen in observations.items()}

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the actions in the env, and tell as facts which messages were cut."""
        for agent in actions:
            if (talk := self._unread.pop(agent, None)) is not None:
                len(talk)  # its facts are known once it is written
        facts = {agent: self._views[agent].facts for agent in actions if agent in self._views}
        result = self.inner.step(actions)
        names = {name for each in facts.values() for name in each}
        info = {name: {agent: each[name] for agent, each in facts.items() if name in each} for name in names}
        shown = {agent: self._show(agent, seen) for agent, seen in result.observations.items()}
        return dataclasses.replace(result, observations=shown, info={**result.info, **info})

    def _show(self, agent: str, seen: Observation) -> Observation:
        if seen.messages is None:
            self._views[agent] = _View()
            return seen
        if isinstance(seen.messages, Conversation):
            talk = seen.messages
            shown = Conversation(lambda reader: self._shorten(agent, talk.for_reader(reader), reader))
            self._unread[agent] = shown
            return dataclasses.replace(seen, messages=shown)
        return dataclasses.replace(seen, messages=self._shorten(agent, tuple(seen.messages), WORDS))

    def _shorten(self, agent: str, messages: tuple[Message, ...], reader: Reader) -> tuple[Message, ...]:
        view, self._counts = self._views[agent], self._count or reader.count
        if messages[: len(view.messages)] != view.messages:  # another conversation
            view = self._views[agent] = _View()
        view.messages = messages
        shown = self._cut(view)
        total, cut = self._size(shown), False
        if total > self._budget:
            for turn in self._turns(messages):
                if total <= self._down_to:
                    break
                if not set(turn) <= view.cut:
                    view.cut |= set(turn)
                    cut = True
                    total = self._size(self._cut(view))
            if cut and self._method == "summarise":
                view.summary = str(self._summarise([messages[place] for place in sorted(view.cut)]))
            shown = self._cut(view)
        left_out = sorted(view.cut)
        view.facts = {
            "dropped": [] if self._method == "summarise" else left_out,
            "summarised": left_out if self._method == "summarise" else [],
            "shown_tokens": self._size(shown),
            "history_tokens": self._size(messages),
            "cut": cut,
        }
        return shown

    def _size(self, messages: Sequence[Message]) -> int:
        return sum(self._counts(content(message)) for message in messages)

    def _turns(self, messages: Sequence[Message]) -> list[list[int]]:
        """Places that may go, oldest first: each answer with what follows it up to the next one."""
        starts = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
        first = next((place for place, message in enumerate(messages) if message["role"] == "user"), None)
        asked = max((place for place, message in enumerate(messages) if message["role"] == "user"), default=-1)
        fixed = {place for place, message in enumerate(messages) if message["role"] == "system"} | {first}
        turns = [
            [place for place in range(start, end) if place not in fixed]
            for start, end in pairwise([*starts, len(messages)])
            if end <= len(messages) - self._keep and not start < asked < end  # what this turn answers stays
        ]
        if self._method == "clear":
            turns = [[place for place in turn if messages[place]["role"] != "assistant"] for turn in turns]
        return [turn for turn in turns if turn]

    def _cut(self, view: _View) -> tuple[Message, ...]:
        """The messages without those that were cut, and a word about them."""
        if not view.cut:
            return view.messages
        if self._method == "clear":
            return tuple(
                {**each, "content": f"[left out: {self._counts(content(each))} tokens]"} if place in view.cut else each
                for place, each in enumerate(view.messages)
            )
        note = view.summary or f"[{len(view.cut)} earlier messages are left out]"
        asked = next((place for place, message in enumerate(view.messages) if message["role"] == "user"), min(view.cut))
        kept = [message for place, message in enumerate(view.messages) if place not in view.cut]
        at = sum(place not in view.cut for place in range(asked))
        if asked in view.cut:
            return (*kept[:at], {"role": "user", "content": note}, *kept[at:])
        told = {**kept[at], "content": f"{kept[at]['content']}\n\n{note}"}
        return (*kept[:at], told, *kept[at + 1 :])


def context_window(env: EnvFactory | str, **options: Any) -> EnvFactory:
    """Env factory from `env`, a factory or name: conversations cut to a token budget; options of `ContextWindowEnv`.

    >>> env = context_window("roles/toolbox", budget=200)()
    >>> env.facts["dropped"]
    list[int]
    """
    factory = functools.partial(ContextWindowEnv, env, **options)
    factory()
    return factory
