"""Memory that the roles of a team share: entries that some write with a tool and some read, within one episode.

    env.shared_memory: {write: all, read: [solver, "worker-*"], entries: 20, tokens: 400}     # around env.workflow

It stands around the env, so it works for every workflow and for games. A reader is shown the latest entries with their
authors in each of its turns, and finds earlier ones with the tool `recall`. The memory is empty at the start of each
episode, so an episode does not depend on which others were played. Left out: memory that lasts longer, which would.
"""

from __future__ import annotations

import dataclasses
import functools
import glob
import re
from collections.abc import Mapping, Sequence
from typing import Any

from palaestra.algebra.turns import clean
from palaestra.envs.conversations import ChatMessage, Conversation, Reader
from palaestra.envs.facts import facts_of
from palaestra.envs.protocol import Action, EnvFactory, Observation, StepResult
from palaestra.envs.tools import Tool, ToolError
from palaestra.errors import InputError, nearest
from palaestra.teams.instructions import TEMPLATES, family
from palaestra.teams.memory_entries import MemoryEntry, MemoryView, ShownEntry, line, remembered
from palaestra.teams.role_tools import Given, RoleTools, matching, tools_by_role, with_system

FACTS: dict[str, Any] = {
    "memory_written": list[str],
    "memory_read": list[int],
    "memory_author": list[str],
    "memory_left_out": list[int],
}
HEARD = ("heard", "heard_turn", "heard_weight", "heard_kept", "heard_reason")
KNOWN = ("role", "family", "writes", "reads", "recall", "writers", "readers", "entries", "tokens", "default")
"""Variables of `instructions`."""


class SharedMemoryEnv:
    """Env wrapper (of an env factory) with a memory that roles share in an episode; recipe key `env.shared_memory`.

    facts: those of the env and of `palaestra.teams.RoleTools`, which runs the calls; of a writer's turn memory_written,
    texts of the entries that it wrote; of a reader's turn memory_read and memory_author, when and by whom the entries
    were written that it was shown or looked up, and memory_left_out, when those were written that it was not shown, or
    not whole. If the env tells `heard`, entries of others are messages there, of the turns that wrote them.

    Args:
        env: Makes the env; a team, for example.
        write: Roles, or patterns such as "worker-*", that write; "all" of them.
        read: Roles that read.
        entries: Most entries that a turn is shown, the latest.
        tokens: Most tokens of these, as the reader's tokenizer counts them.
        recall: Most entries that a call of `recall` finds; 0: there is no such tool.
        instructions: Role, or role without its number, or "*" -> a Jinja template, which stands in the system prompt of
            chat models instead of the shipped one, `{{ default }}`.
        tools, turns, native: Of `palaestra.teams.RoleTools`: further tools of roles, how often they may be called in a
            turn of the team, and whether messages have the form of models with tools.

    Raises:
        InputError: a role is unknown, a number is out of range, or the env tells of tools or a shared memory itself.
    """

    def __init__(
        self,
        env: EnvFactory,
        *,
        write: str | Sequence[str] = "all",
        read: str | Sequence[str] = "all",
        entries: int = 20,
        tokens: int = 400,
        recall: int = 3,
        instructions: Mapping[str, str] | None = None,
        tools: Given | None = None,
        turns: int = 4,
        native: bool = True,
    ) -> None:
        if min(entries, tokens) < 1 or recall < 0:
            raise InputError(
                f"shared_memory: entries={entries} and tokens={tokens} must be at least 1, recall={recall} at least 0"
            )
        made = env()
        if taken := facts_of(made).keys() & FACTS.keys():
            raise InputError(f"shared_memory: {type(made).__name__} tells {min(taken)!r} itself")
        self.agents, self.task = tuple(made.agents), ""
        self._writers, self._readers = (_roles(each, self.agents) for each in (write, read))
        self._most, self._tokens, self._found = entries, tokens, recall
        given = {role: [*each] for role, each in tools_by_role(tools or {}, self.agents).items()}
        given = {glob.escape(role): [*given.get(role, ()), *self._tools(role)] for role in self.agents}
        self.inner = RoleTools(lambda: made, given, turns=turns, native=native)
        self.tolerates = self.inner.tolerates
        self.facts = {**self.inner.facts, **FACTS}
        self._given, self._systems = self._checked(instructions or {}), dict[str, str]()
        self._begin()

    def __getattr__(self, name: str) -> Any:
        """Whatever else the env has: question and answer of a task, for scripts and reports."""
        if name == "inner" or name.startswith("__") or name in ("snapshot", "restore"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin the episode of `seed` with an empty memory."""
        self._begin()
        seen = self.inner.reset(seed)
        self.task = self.inner.task
        return {role: self._show(role, each) for role, each in seen.items()}

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the actions, write what was remembered, and tell who read what as facts."""
        self._written: dict[str, list[str]] = {}
        views = {role: self._views[role][-1] for role in actions if role in self._views}
        info: dict[str, Any] = {
            "memory_read": {role: [entry.turn for entry in view.read] for role, view in views.items()},
            "memory_author": {role: [entry.author for entry in view.read] for role, view in views.items()},
            "memory_left_out": {role: view.left_out for role, view in views.items()},
        }
        result = self.inner.step(actions)
        info |= result.info
        if self._written:
            info["memory_written"] = self._written
        self._hear(info)
        self._now += 1
        calling = result.info.get("tool_turn", {})
        shown = {
            role: self._show(role, seen, begins=not calling.get(role, False))
            for role, seen in result.observations.items()
        }
        return dataclasses.replace(result, observations=shown, info=info)

    # -- entries ------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._entries: list[MemoryEntry] = []
        self._views: dict[str, list[MemoryView]] = {role: [] for role in self._readers}
        self._now = 0

    def _tools(self, role: str) -> list[Tool]:
        """Tools of a role: `remember` if it may write, `recall` if it may read."""
        text, key = {"type": "string"}, {"type": "string", "description": "an entry under the same key is replaced"}
        found = []
        if role in self._writers:
            write = functools.partial(self._remember, role)
            about = "Write an entry of the team's shared memory."
            found.append(Tool("remember", about, {"text": text, "key": key}, write, optional=("key",)))
        if role in self._readers and self._found:
            about = "Find entries of the team's shared memory by words in them."
            found.append(Tool("recall", about, {"query": text}, functools.partial(self._recall, role)))
        return found

    def _remember(self, role: str, text: str, key: str = "") -> str:
        name = " ".join(re.sub(r'["<>]', " ", clean(str(key))).split())  # it stands within a mark, in quotes
        entry = MemoryEntry(clean(str(text)).strip(), role, self._now, name)
        if not entry.text:
            raise ToolError("the text is blank")
        self._entries = [each for each in self._entries if not entry.key or each.key != entry.key] + [entry]
        self._written.setdefault(role, []).append(entry.text)
        return "Written."

    def _recall(self, role: str, query: str) -> str:
        """Entries of earlier turns with most of the query's words, the latest first among equals."""
        wanted = _words(str(query))
        counted = [(len(wanted & _words(f"{entry.author} {entry.key} {entry.text}")), entry) for entry in self._entries]
        ranked = sorted((-count, -entry.turn, entry) for count, entry in counted if count and entry.turn < self._now)
        found = [entry for _, _, entry in ranked[: self._found]]
        self._views[role][-1].recalled += found
        return "\n".join(line(ShownEntry(entry, entry.text)) for entry in found) or "No entry has these words."

    # -- what is read -------------------------------------------------------------------------------------------------

    def _show(self, role: str, seen: Observation, *, begins: bool = True) -> Observation:
        """Observation of a role with the entries that the memory had when its turn in the team began."""
        views = self._views.get(role, [])
        if role in self._readers and begins:
            views.append(MemoryView(seen, self._entries, self._most, self._tokens))
        if role not in self._writers and role not in self._readers:
            return seen
        past = tuple(views)
        lines = [line(each) for each in past[-1].shown] if past else []

        def write(reader: Reader) -> Sequence[ChatMessage]:
            return with_system(remembered(past, seen.conversation(reader), reader), self._system(role))

        return dataclasses.replace(seen, text="\n".join([seen.text, *lines]), messages=Conversation(write))

    def _hear(self, info: dict[str, Any]) -> None:
        """Entries of others among the messages that a turn heard, where the env tells of these."""
        if not all(isinstance(info.get(name), Mapping) for name in HEARD):
            return
        told: dict[str, dict[str, Any]] = {name: dict(info[name]) for name in HEARD}
        for role in set.intersection(*map(set, told.values())) & {role for role, views in self._views.items() if views}:
            for entry in self._views[role][-1].read:
                if entry.author != role:
                    for name, value in zip(HEARD, (entry.author, entry.turn, 1.0, True, ""), strict=True):
                        told[name][role] = (*told[name][role], value)
        info |= told

    def _checked(self, given: Mapping[str, str]) -> dict[str, str]:
        """Instructions by role; raises InputError for others, and for what is no template of `KNOWN`."""
        known = [*self.agents, *dict.fromkeys(map(family, self.agents)), "*"]
        for role, text in given.items():
            if role not in known:
                raise InputError(f"shared_memory: instructions of {role!r}, which is no role{nearest(role, known)}")
            TEMPLATES.check_text(text, KNOWN, f"shared_memory: instructions of {role!r}")
        return dict(given)

    def _system(self, role: str) -> str:
        """Part of a role's system prompt that explains the memory."""
        if role not in self._systems:
            values: dict[str, Any] = {
                "role": role, "family": family(role), "writes": role in self._writers, "reads": role in self._readers,
                "recall": self._found, "entries": self._most, "tokens": self._tokens,
                "writers": self._writers, "readers": [each for each in self._readers if each != role],
            }  # fmt: skip
            text, given = TEMPLATES.render("shared_memory", values), self._given
            own = next((given[key] for key in (role, family(role), "*") if key in given), None)
            self._systems[role] = text if own is None else TEMPLATES.render_text(own, values | {"default": text})
        return self._systems[role]


def _roles(given: str | Sequence[str], agents: Sequence[str]) -> tuple[str, ...]:
    """Roles that are meant, in the order of the agents."""
    patterns = ("*" if given == "all" else given,) if isinstance(given, str) else given
    meant = {role for pattern in patterns for role in matching(pattern, agents, "shared_memory")}
    if not meant:
        raise InputError("shared_memory: write and read must name at least one role each, or be 'all'")
    return tuple(role for role in agents if role in meant)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))


def shared_memory(env: EnvFactory, **options: Any) -> EnvFactory:
    """Env factory of `env` with a memory that its roles share; options as of `SharedMemoryEnv`, checked at once.

    >>> from palaestra.envs import make
    >>> from palaestra.teams import workflows
    >>> env = shared_memory(workflows.debate(make("native/cups"), 2), write=["debater-1"])()
    >>> [tool["function"]["name"] for tool in env.reset(0)["debater-1"].tools]
    ['remember', 'recall']
    """
    factory = functools.partial(SharedMemoryEnv, env, **options)
    factory()
    return factory
