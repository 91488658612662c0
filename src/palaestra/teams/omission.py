"""`omission`: an agent reads all earlier responses of its env again, and its actions may leave some of them out.

    omission()                         the agent's own replies stand between the responses
    omission(replies=False)            responses alone

An action is a reply of which a tag `<omit_tool_response_N></omit_tool_response_N>` says that response N is not needed
any more: from the next turn on an empty placeholder stands in its place. A reply may also go without its thought, which
stands in `<think>…</think>`. Left out: envs whose agents read arrays, and thoughts that are taken out later.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from palaestra.envs.conversations import ChatMessage, Conversation, Reader
from palaestra.envs.facts import facts_of
from palaestra.envs.protocol import Action, Env, EnvFactory, Observation, StepResult
from palaestra.errors import EnvError, InputError

TAG = "<omit_tool_response_{number}></omit_tool_response_{number}>"
"""Tag of the released prompts; {number} is that of the response, from 1."""
PLACEHOLDER = "<omitted_tool_response_{number}></omitted_tool_response_{number}>"
THOUGHT = re.compile(r"<think>(.*?)</think>", re.DOTALL)
RULES = (
    "Think in <think>...</think>, or write <think></think> where no thought is needed. Write {tag} before the action "
    "to leave response N out of what is shown from the next turn on."
)
"""Instruction for chat models; {tag} is the tag of a response N."""
FACTS = {"omitted": list[int], "context": int, "saved_observation": float, "saved_thought": float}


@dataclasses.dataclass
class _View:
    """Conversation of an agent: responses of the env, its own replies, and the numbers that were left out, from 1."""

    responses: list[str] = dataclasses.field(default_factory=list)
    replies: list[str] = dataclasses.field(default_factory=list)
    omitted: set[int] = dataclasses.field(default_factory=set)


class Omission:
    """Env wrapper in which actions may drop earlier responses from the agent's context (Agent-Omit [66]).

    2602.04284.

    In an env with choices each one stands twice: as it is, and with the tag of the response that is read now. Replies
    in words may name any response that was read. The env is given the reply without the tags. What was left out stays
    out. Lengths are in characters.

    facts: those of the env; omitted, numbers that the action left out; context, length of what was read;
    saved_observation, length of the responses that the action left out; saved_thought, mean length of a message of the
    context if the thought is empty, else 0; both as the released rollout counts them.

    Args:
        env: Factory of an env with text.
        replies: The agent's own replies are in the context, after the response that each one answers.
        tag: Of a response that is left out, with {number}.

    Raises:
        InputError: The tag has no {number}.
        EnvError: When it is played, an agent reads arrays.
    """

    def __init__(self, env: EnvFactory, *, replies: bool = True, tag: str = TAG) -> None:
        if "{number}" not in tag:
            raise InputError(f"omission: tag={tag!r} needs {{number}}")
        self.env: Env = env()
        self.replies, self.tag = replies, tag
        parts = [re.escape(part) for part in tag.split("{number}")]
        self._tags = re.compile(parts[0] + r"(\d+)" + r"\d+".join(parts[1:]))
        self.agents, self.task = tuple(self.env.agents), ""
        self.facts: dict[str, Any] = {**facts_of(self.env), **FACTS}

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin the episode; nothing is left out."""
        self._views: dict[str, _View] = {agent: _View() for agent in self.agents}
        self._seen: dict[str, Observation] = {}
        seen = self.env.reset(seed)
        self.task = self.env.task
        return {agent: self._show(agent, each) for agent, each in seen.items()}

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Drop the earlier responses that the replies name, and take the rest of them in the env."""
        read = {agent: self._read(agent, action) for agent, action in actions.items()}
        told = {name: {agent: facts[name] for agent, (_, facts) in read.items()} for name in FACTS}
        result = self.env.step({agent: rest for agent, (rest, _) in read.items()})
        shown = {agent: self._show(agent, each) for agent, each in result.observations.items()}
        return dataclasses.replace(result, observations=shown, info={**result.info, **told})

    def _read(self, agent: str, action: Action) -> tuple[Action, dict[str, Any]]:
        """The action for the env, and facts of the turn; the view is rewritten. An illegal action saves nothing."""
        view, seen = self._views[agent], self._seen[agent]
        place = seen.index(action)
        reply = str(action) if seen.choices is None else "" if place is None else seen.choices[place]
        legal, context = seen.choices is None or place is not None, self._messages(view)
        named = {int(number) for number in self._tags.findall(reply)}
        new = {number for number in named if 1 <= number <= len(view.responses)} - view.omitted
        length = sum(map(len, context))
        thought = THOUGHT.search(reply)
        silent = legal and (thought is None or not thought.group(1).strip())
        facts = {
            "omitted": sorted(new),
            "context": length,
            "saved_observation": float(sum(len(view.responses[number - 1]) for number in new)),
            "saved_thought": length / len(context) if silent else 0.0,
        }
        rest = self._tags.sub("", reply).strip()
        view.replies.append(rest)
        view.omitted |= new
        if seen.choices is None:
            return rest, facts
        return action if place is None else place % (len(seen.choices) // 2), facts

    def _show(self, agent: str, seen: Observation) -> Observation:
        """What the agent reads: its context, and twice the choices."""
        if seen.array is not None:
            raise EnvError("omission: the env shows arrays, of which no response can be left out; take one with text")
        view = self._views[agent]
        view.responses.append(seen.text)
        made = dataclasses.replace(seen, text="\n".join(self._messages(view)), messages=self._chat(agent, seen))
        if seen.choices is not None:
            tag = self.tag.format(number=len(view.responses))
            choices = (*seen.choices, *(f"{tag}{each}" for each in seen.choices))
            mask = None if seen.mask is None else np.concatenate([seen.mask, seen.mask])
            made = dataclasses.replace(made, choices=choices, mask=mask)
        self._seen[agent] = made
        return made

    def _messages(self, view: _View) -> list[str]:
        """Texts of the context, oldest first: responses or their placeholders, and replies if they are shown."""
        found = []
        for number, response in enumerate(view.responses, 1):
            found.append(PLACEHOLDER.format(number=number) if number in view.omitted else response)
            if self.replies and number <= len(view.replies):
                found.append(view.replies[number - 1])
        return found

    def _chat(self, agent: str, seen: Observation) -> Conversation | None:
        """The context as a conversation, after the env's system prompt and the rules; None if the env has none."""
        if seen.messages is None:
            return None
        talk, view = seen.messages, self._views[agent]
        texts = self._messages(view)

        def write(reader: Reader) -> tuple[ChatMessage, ...]:
            now = talk.for_reader(reader) if isinstance(talk, Conversation) else tuple(talk)
            system = "\n\n".join(str(each["content"]) for each in now if each["role"] == "system")
            rules = RULES.format(tag=self.tag.format(number="N"))
            first = {"role": "system", "content": f"{system}\n\n{rules}".strip()}
            if not self.replies:
                return (first, {**now[-1], "content": "\n".join([*texts[:-1], str(now[-1]["content"])])})
            roles = ("user", "assistant")
            return (first, *({"role": roles[at % 2], "content": text} for at, text in enumerate(texts[:-1])), now[-1])

        return Conversation(write)


def omission(env: EnvFactory, *, replies: bool = True, tag: str = TAG) -> EnvFactory:
    """Env factory from another, `env`: actions may drop earlier responses from the agent's context, see `Omission`."""
    factory = functools.partial(Omission, env, replies=replies, tag=tag)
    factory()
    return factory
