"""Tools that an agent calls, and the conversation in which it does: a task is asked, tools answer, the agent answers.

`ToolEnv` is such a conversation for one agent; a subclass says in `draw` which task a seed stands for. An answer with
calls runs them, all or none; one without calls is the final answer. What is malformed, unknown or fails is told to the
agent, and in the table. Roles of a team get tools of their own by `palaestra.teams.role_tools`. Left out: tools that
wait for each other.
"""

from __future__ import annotations

import inspect
import json
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from palaestra.algebra.turns import clean
from palaestra.envs.protocol import Observation
from palaestra.envs.replies import read_reply
from palaestra.envs.tool_calls import FORMATS, Call, ParsedAnswer, parse, to_json
from palaestra.envs.tool_calls.formats import types_of
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import EnvError, InputError, nearest
from palaestra.foundation.registry import Registry

LONGEST_RESULT = 4000


class ToolError(EnvError):
    """Raised by a tool's function for a request that it cannot fulfil; the agent reads the message."""


@dataclass(frozen=True)
class Tool:
    """Data of a tool that agents may call: name, description, JSON schemas of parameters, and its function.

    parameters: JSON schemas of its arguments by name, all of which are needed but those in `optional`. function: from
    keyword arguments to text; whatever it raises is told to the agent. Whole numbers reach it as int, 2.0 as 2.

    Raises:
        InputError: the function is async, or a name in `optional` is no parameter.

    >>> Tool("add", "The sum.", {"a": {"type": "number"}}, lambda a: str(a + 1)).run({"a": 1})
    ('2', None)
    """

    name: str
    description: str
    parameters: Mapping[str, Mapping[str, Any]]
    function: Callable[..., str]
    optional: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if inspect.iscoroutinefunction(self.function):
            raise InputError(f"Tool {self.name!r}: its function is async; give one that runs it, as by asyncio.run")
        for name in self.optional:
            if name not in self.parameters:
                raise InputError(f"Tool {self.name!r}: optional has {name!r}{nearest(name, self.parameters)}")

    @property
    def schema(self) -> dict[str, Any]:
        """The tool's JSON schema, as chat templates and endpoints take it."""
        needed = [name for name in self.parameters if name not in self.optional]
        takes = {"type": "object", "properties": {n: dict(p) for n, p in self.parameters.items()}, "required": needed}
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": takes},
        }

    def run(self, arguments: Mapping[str, Any]) -> tuple[str, str | None]:
        """Call the tool: (result as text, error or None), both of bounded length."""
        try:
            given = {name: self._whole(name, value) for name, value in arguments.items()}
            result, problem = clean(str(self.function(**given))), None
        except ToolError as error:
            problem = str(error) or "it failed"
            result = f"error: {problem}"
        except (Exception, SystemExit) as error:  # it runs on what a model wrote
            result = problem = f"error: {type(error).__name__}: {error}"
        if len(result) > LONGEST_RESULT:
            result = f"{result[:LONGEST_RESULT]} … ({len(result)} characters)"
        return clean(result), problem and clean(problem)[:LONGEST_RESULT]

    def _whole(self, name: str, value: Any) -> Any:
        types = types_of(self.parameters.get(name, {})) if isinstance(value, float) else ()
        return int(value) if "integer" in types and "number" not in types and value.is_integer() else value


TOOLS: Registry[Tool] = Registry(
    "tool", home=("palaestra.envs.local_tools", "palaestra.envs.roles"), example="python()"
)
"""What `env.tools` of a recipe may give to a role: functions that make a `Tool`."""


class ToolReply(NamedTuple):
    """Data of executed tool calls: chat messages to append, results as texts, and the first error or None."""

    messages: tuple[dict[str, Any], ...]
    results: tuple[str, ...]
    problem: str | None


def run_calls(tools: Mapping[str, Tool], said: ParsedAnswer, text: str, *, first: int, native: bool) -> ToolReply:
    """Executes a `ParsedAnswer`'s calls by `tools`: `ToolReply`, its call ids from `first`, messages `native` or plain.

    Args:
        tools: By name.
        said: The answer as it was read.
        text: The answer as it was written.
        first: Number of the first call in its conversation.
        native: Whether messages are those of chat models with tools, see `ToolEnv`.
    """
    named = [(f"call{first + number:05d}", call) for number, call in enumerate(said.calls)]
    answer: dict[str, Any] = {"role": "assistant", "content": said.text if native else text}
    if native:
        answer["tool_calls"] = [
            {"id": name, "type": "function", "function": {"name": call.name, "arguments": dict(call.arguments)}}
            for name, call in named
        ]
    ran = [tools[call.name].run(call.arguments) for _, call in named]
    told = [told_result(result, name if native else None) for (name, _), (result, _) in zip(named, ran, strict=True)]
    problems = [problem for _, problem in ran if problem]
    return ToolReply((answer, *told), tuple(result for result, _ in ran), problems[0] if problems else None)


def told_result(text: str, name: str | None = None) -> dict[str, Any]:
    """Chat message (dict) with a tool call's result: role `tool` with the call's id, or role `user` without one."""
    if name is None:
        return {"role": "user", "content": text}
    return {"role": "tool", "content": text, "tool_call_id": name}


@dataclass(frozen=True)
class ToolTask:
    """Data of a question for an agent with tools: its id (`name`), text, right answer, and `gold` calls."""

    name: str
    question: str
    answer: str
    gold: tuple[Call, ...] = ()


@dataclass
class ToolConversation:
    """Mutable state of a `ToolEnv` episode: the task, chat messages, the same as text lines, and counters.

    messages: as chat models see them; lines: as others read them.
    """

    task: ToolTask
    messages: list[dict[str, Any]]
    lines: list[str]
    turns: int = 0
    calls: int = 0
    over: bool = False
    news: dict[str, Any] = field(default_factory=dict)


class ToolEnv(NativeEnv):
    """Base class of tool-use envs: `assistant` calls tools for up to `turns` - 1 turns, then answers; right pays 1.

    Of an answer counts what `palaestra.envs.replies.read_reply` reads, or what stands behind its thinking and the last
    "answer:", without case, outer white space and full stop. An answer that cannot be read is not valid, costs a turn
    and is told why.

    facts: tool and arguments (JSON) of the first call; calls, all of them (JSON), and gold, those that lead to the
    answer; call_error, why a call was not made, and tool_error, why a tool failed, null if nothing did; said, the final
    answer. They are what `match_calls` and its relatives need.

    Args:
        tools: what may be called.
        turns: most answers of an episode, the last included.
        format: how calls are written, a name of `palaestra.envs.tool_calls.FORMATS`.
        native: tell calls and results as chat models with tools know them (`tool_calls`, role "tool", schemas beside
            the messages); False: as plain text of assistant and user, for templates and endpoints that know neither.
        system: a first message; None for none.

    Raises:
        InputError: an argument is out of range, or two tools have one name.
    """

    agents: tuple[str, ...] = ("assistant",)
    with_thinking = True
    facts: Mapping[str, type] = {
        "tool": str,
        "arguments": str,
        "calls": str,
        "gold": str,
        "call_error": str,
        "tool_error": str,
        "said": str,
    }

    def __init__(
        self,
        tools: Sequence[Tool],
        *,
        turns: int = 6,
        format: str = "auto",
        native: bool = True,
        system: str | None = None,
    ) -> None:
        if turns < 1:
            raise InputError(f"{type(self).__name__}: turns={turns} must be at least 1")
        if format not in FORMATS:
            raise InputError(f"{type(self).__name__}: format={format!r}{nearest(format, FORMATS)}")
        self.tools = {tool.name: tool for tool in tools}
        if len(self.tools) < len(tools):
            raise InputError(f"{type(self).__name__}: two tools of one name among {[tool.name for tool in tools]}")
        self.turns, self.format, self.native, self.system = turns, format, native, system
        self.schemas = tuple(tool.schema for tool in tools)
        self.heading = "tools: " + ", ".join(f"{tool.name}({', '.join(tool.parameters)})" for tool in tools)

    @abstractmethod
    def draw(self) -> ToolTask:
        """The task of an episode, drawn from `rng`; subclasses define it."""

    def begin(self) -> tuple[str, ToolConversation]:
        """Draw a task and open the conversation with its question."""
        task = self.draw()
        system = [self.system] if self.system else []
        if not self.native:
            system.append(f"Tools, called as JSON with name and arguments: {json.dumps(self.schemas)}")
        told = [{"role": "system", "content": "\n".join(system)}] if system else []
        return task.name, ToolConversation(
            task, [*told, {"role": "user", "content": task.question}], [self.heading, f"user: {task.question}"]
        )

    def look(self) -> dict[str, Observation]:
        """Observation of the assistant: the conversation so far, and the tools' schemas."""
        talk = self.state
        if talk.over:
            return {}
        tools = self.schemas if self.native else ()
        return {"assistant": Observation("\n".join(talk.lines), messages=tuple(talk.messages), tools=tools)}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Run the tool calls, or score the answer."""
        talk, text = self.state, clean(str(chosen["assistant"] or ""))
        talk.turns += 1
        said = parse(text, self.format, self.schemas)
        info: dict[str, Any] = {"gold": to_json(talk.task.gold)}
        if said.calls:
            first = said.calls[0]
            info |= {"tool": first.name, "arguments": json.dumps(dict(first.arguments)), "calls": to_json(said.calls)}
        talk.lines.append(f"assistant: {text}")
        if said.error is not None:
            talk.messages += [{"role": "assistant", "content": text}, self._tell(f"error: {said.error}")]
            info |= {"call_error": said.error, "valid": {"assistant": False}}
        elif said.calls:
            problem = self._run(said, text)
            info |= {"tool_error": problem} if problem else {}
        else:
            talk.over, right = True, self.right(said.text)
            return {"assistant": float(right)}, info | {"said": said.text, "success": right}
        if talk.turns >= self.turns:
            talk.over = True
            return {"assistant": 0.0}, info | {"success": False}
        return {}, info

    def right(self, text: str) -> bool:
        """Whether a text answers the task rightly, by the answer of a reply, or by what follows its last "answer:"."""
        said = read_reply(text)
        answer = re.split(r"answer:", said.text, flags=re.IGNORECASE)[-1] if said.form == "whole" else said.text
        return plain(answer) == plain(self.state.task.answer)

    def _run(self, said: ParsedAnswer, text: str) -> str | None:
        """Run all calls and tell the results; what went wrong first."""
        talk = self.state
        found = run_calls(self.tools, said, text, first=talk.calls, native=self.native)
        talk.calls += len(said.calls)
        talk.messages += found.messages
        talk.lines += [f"{'tool' if self.native else 'user'}: {result}" for result in found.results]
        return found.problem

    def _tell(self, text: str) -> dict[str, Any]:
        self.state.lines.append(f"user: {text}")
        return told_result(text)


def plain(text: str) -> str:
    """An answer normalised for comparison: without case, outer white space and full stop.

    >>> plain(" 42. ")
    '42'
    """
    return text.strip().removesuffix(".").strip().casefold()
