"""Tools of a role: its calls are run and answered before the team hears what it says; other roles know nothing of them.

    env.tools: {coder: [python()], reader: [search("notes/")]}          # around whatever env.workflow makes

A seat with tools is asked again after each answer with calls, with the calls and their results in its conversation. An
answer without calls goes to the team. Each answer is a turn of the seat, with the columns of `palaestra.envs.tools`.
Later turns of the seat still show its earlier calls, so its conversation goes on where it stood. Left out: tools whose
effect others see, which are an env of their own, and going back to a snapshot.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from palaestra.algebra.turns import clean
from palaestra.envs.conversations import ChatMessage, Conversation, Reader
from palaestra.envs.facts import facts_of
from palaestra.envs.protocol import Action, Env, EnvFactory, NoAction, Observation, StepResult
from palaestra.envs.tool_calls import FORMATS, parse, to_json
from palaestra.envs.tools import TOOLS, Tool, run_calls, told_result
from palaestra.errors import InputError, nearest
from palaestra.foundation.registry import split_calls

Given = Mapping[str, str | Sequence[str | Tool]]
"""Role, or a pattern of roles such as "worker-*" -> its tools: objects, or calls of registered names."""

FACTS: dict[str, Any] = {
    "tool": str,
    "arguments": str,
    "calls": str,
    "call_error": str,
    "tool_error": str,
    "tool_turn": bool,
}
CALLED = "Tools, called as JSON with name and arguments: "
LAST = "No further calls: answer now."


@dataclass
class _Seat:
    """A seat with tools.

    Attributes:
        past: for each of its earlier turns in the team, what it was shown then and the messages of its calls there.
        seen: what the team shows it now. messages, lines: of its calls in this turn. used: answers with calls.
    """

    tools: dict[str, Tool]
    schemas: tuple[Mapping[str, Any], ...]
    heading: str
    past: list[tuple[Observation, tuple[dict[str, Any], ...]]] = field(default_factory=list)
    seen: Observation | None = None
    messages: list[dict[str, Any]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    used: int = 0
    calls: int = 0

    def begin(self, seen: Observation) -> None:
        """A turn in the team."""
        if self.seen is not None and self.messages:
            self.past.append((self.seen, tuple(self.messages)))
        self.seen, self.messages, self.lines, self.used = seen, [], [], 0

    def shown(self, native: bool) -> Observation:
        """What the team shows, with the tools and what was called so far."""
        seen = self.seen
        assert seen is not None
        past, now = tuple(self.past), tuple(self.messages)

        def write(reader: Reader) -> Sequence[ChatMessage]:
            talk = [*_spliced(past, seen.conversation(reader), reader), *now]
            return talk if native else with_system(talk, f"{CALLED}{json.dumps(self.schemas)}")

        return dataclasses.replace(
            seen,
            text="\n".join([self.heading, seen.text, *self.lines]),
            messages=Conversation(write),
            tools=self.schemas if native else (),
            fields=seen.fields if native or seen.choices is not None else (),  # a reply held to fields calls nothing
        )


def with_system(talk: Sequence[ChatMessage], text: str) -> list[ChatMessage]:
    """The conversation with a text at the end of its system message, or as that."""
    if talk and talk[0]["role"] == "system":
        return [{**talk[0], "content": f"{talk[0]['content']}\n\n{text}"}, *talk[1:]]
    return [{"role": "system", "content": text}, *talk]


def _spliced(
    past: Sequence[tuple[Observation, tuple[dict[str, Any], ...]]], talk: Sequence[ChatMessage], reader: Reader
) -> list[ChatMessage]:
    """The conversation with earlier calls where they were made, if it goes on from there."""
    found: list[ChatMessage] = []
    place = 0
    for seen, messages in past:
        before = seen.conversation(reader)
        if len(before) < place or tuple(talk[: len(before)]) != tuple(before):
            continue
        found += [*talk[place : len(before)], *messages]
        place = len(before)
    return [*found, *talk[place:]]


class RoleTools:
    """Env wrapper in which some seats have tools that they may call before they act; recipe key `env.tools`.

    facts: those of the env; of turns of seats with tools also tool and arguments (JSON) of the first call, calls (all
    of them, JSON), call_error, why a call was not made, tool_error, why a tool failed, and tool_turn, whether the turn
    called tools, so the team did not hear it. `heard_turn` names the turns of the table.

    Args:
        env: Makes the env; a team, for example.
        tools: Role, or a pattern of roles, to tools.
        turns: Most answers with calls in one turn of the team; after that the next answer counts as it is.
        format: How calls are written, a name of `palaestra.envs.tool_calls.FORMATS`.
        native: See `palaestra.envs.tools.ToolEnv`.

    Raises:
        InputError: a role or tool is unknown, two tools have one name, or the env tells of tools itself.
    """

    def __init__(
        self, env: EnvFactory, tools: Given, *, turns: int = 4, format: str = "auto", native: bool = True
    ) -> None:
        if turns < 1:
            raise InputError(f"tools: turns={turns} must be at least 1")
        if format not in FORMATS:
            raise InputError(f"tools: format={format!r}{nearest(format, FORMATS)}")
        self.inner: Env = env()
        self.agents, self.task = tuple(self.inner.agents), ""
        self.tolerates = bool(getattr(self.inner, "tolerates", False))
        own = facts_of(self.inner)
        if taken := own.keys() & FACTS.keys():
            raise InputError(f"tools: {type(self.inner).__name__} tells {min(taken)!r} itself, of tools of its own")
        self.facts = {**own, **FACTS}
        self._turns, self._format, self._native = turns, format, native
        self._given = tools_by_role(tools, self.agents)

    def __getattr__(self, name: str) -> Any:
        """Whatever else the env has: question and answer of a task, for scripts and reports."""
        if name == "inner" or name.startswith("__") or name in ("snapshot", "restore"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Ask the first roles."""
        self._seats = {role: _seat(tools) for role, tools in self._given.items()}
        self._now = self._inner_now = 0
        self._when: dict[tuple[str, int], int] = {}
        seen = self.inner.reset(seed)
        self.task = self.inner.task
        return self._ask(seen)

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Run tool calls; the env goes on once all asked seats have answered without a call."""
        info: dict[str, dict[str, Any]] = {name: {} for name in (*FACTS, "valid")}
        again: dict[str, Observation] = {}
        for agent, action in actions.items():
            told = self._call(agent, action) if agent in self._seats else {}
            for name, value in told.items():
                info[name][agent] = value
            if told.get("tool_turn"):
                again[agent] = self._seats[agent].shown(self._native)
            else:
                self._done[agent], self._when[agent, self._inner_now] = action, self._now
        self._now += 1
        if self._order - self._done.keys():
            return StepResult(again, info={name: value for name, value in info.items() if value})
        result = self.inner.step({agent: self._done[agent] for agent in self._asked})
        self._inner_now += 1
        merged = self._merged(info, result.info)
        return dataclasses.replace(result, observations=self._ask(result.observations), info=merged)

    def _ask(self, seen: Mapping[str, Observation]) -> dict[str, Observation]:
        self._asked, self._order = tuple(seen), set(seen)
        self._done: dict[str, Action] = {}
        shown = dict(seen)
        for agent in seen.keys() & self._seats.keys():
            self._seats[agent].begin(seen[agent])
            shown[agent] = self._seats[agent].shown(self._native)
        return shown

    def _call(self, agent: str, action: Action) -> dict[str, Any]:
        """Facts of a turn of a seat with tools; its calls are run."""
        seat = self._seats[agent]
        if isinstance(action, NoAction) or not isinstance(action, str):
            return {"tool_turn": False}
        text = clean(action)
        said = parse(text, self._format, seat.schemas)
        told: dict[str, Any] = {"tool_turn": bool(said.calls) or said.error is not None}
        if said.calls:
            first = said.calls[0]
            told |= {"tool": first.name, "arguments": json.dumps(dict(first.arguments)), "calls": to_json(said.calls)}
        if not told["tool_turn"]:
            return told
        if seat.used == self._turns:
            return told | {"tool_turn": False, "call_error": f"limit: {self._turns} answers with calls were made"}
        seat.used += 1
        seat.lines.append(f"{agent}: {text}")
        if said.error is not None:
            problem = f"error: {said.error}"
            seat.messages += [{"role": "assistant", "content": text}, told_result(problem)]
            seat.lines.append(f"user: {problem}")
            told |= {"call_error": said.error, "valid": False}
        else:
            found = run_calls(seat.tools, said, text, first=seat.calls, native=self._native)
            seat.calls += len(said.calls)
            seat.messages += found.messages
            seat.lines += [f"{'tool' if self._native else 'user'}: {result}" for result in found.results]
            told |= {"tool_error": found.problem} if found.problem else {}
        if seat.used == self._turns:
            seat.messages[-1] = {**seat.messages[-1], "content": f"{seat.messages[-1]['content']}\n\n{LAST}"}
            seat.lines.append(LAST)
        return told

    def _merged(self, own: Mapping[str, dict[str, Any]], inner: Mapping[str, Any]) -> dict[str, Any]:
        """Facts of the team's step, each on the turn of the seat that they are about, and those of the calls."""
        found: dict[str, Any] = {name: value for name, value in own.items() if value}
        for name, value in inner.items():
            if name in self.facts and not isinstance(value, Mapping) and value is not None:
                found[name] = dict.fromkeys(self._asked, value)
            elif isinstance(value, Mapping) and name in found:
                found[name] = {**found[name], **value}
            else:
                found[name] = value
        if isinstance(heard := found.get("heard_turn"), Mapping) and isinstance(found.get("heard"), Mapping):
            found["heard_turn"] = {
                agent: tuple(
                    self._when.get((sender, turn), turn)
                    for sender, turn in zip(found["heard"].get(agent, ()), turns, strict=True)
                )
                for agent, turns in heard.items()
            }
        return found


def matching(pattern: str, agents: Sequence[str], field: str) -> list[str]:
    """Roles that a name or a pattern such as "worker-*" means; errors name the `field`.

    Raises:
        InputError: there is no such role.
    """
    found = fnmatch.filter(agents, pattern)
    if not found:
        raise InputError(
            f"{field}: there is no role {pattern!r}{nearest(pattern, agents)}; there are {', '.join(agents)}"
        )
    return found


def tools_by_role(given: Given, agents: Sequence[str]) -> dict[str, tuple[Tool, ...]]:
    """Tools of each role that has any, in the order of the agents.

    Raises:
        InputError: a role or tool is unknown, or two tools of a role have one name.
    """
    found: dict[str, list[Tool]] = {}
    for pattern, listed in given.items():
        meant = matching(pattern, agents, "tools")
        texts = split_calls(listed) if isinstance(listed, str) else listed
        made = [TOOLS.build(each) if isinstance(each, str) else each for each in texts]
        if strange := next((each for each in made if not isinstance(each, Tool)), None):
            raise InputError(f"tools: {pattern!r} has {type(strange).__name__}, expected a Tool or the name of one")
        for role in meant:
            found.setdefault(role, []).extend(made)
    for role, tools in found.items():
        names = [tool.name for tool in tools]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InputError(f"tools: {role!r} has two tools of the name {twice!r}")
    return {role: tuple(found[role]) for role in agents if found.get(role)}


def _seat(tools: Sequence[Tool]) -> _Seat:
    heading = "tools: " + ", ".join(f"{tool.name}({', '.join(tool.parameters)})" for tool in tools)
    return _Seat({tool.name: tool for tool in tools}, tuple(tool.schema for tool in tools), heading)


def role_tools(env: EnvFactory, tools: Given, **options: Any) -> EnvFactory:
    """Env factory from another, `env`: some roles have `tools` {role: tools}, checked at once; options of `RoleTools`.

    env: makes the game. tools: role, or a pattern such as "worker-*", to its tools: `{"coder": "python()"}`.

    >>> from palaestra.envs import make
    >>> from palaestra.teams import workflows
    >>> team = workflows.debate(make("native/cups"), 2)
    >>> role_tools(team, {"debater-1": "python()"})().reset(0)["debater-1"].tools[0]["function"]["name"]
    'python'
    """
    factory = functools.partial(RoleTools, env, dict(tools), **options)
    factory()
    return factory
