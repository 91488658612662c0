"""Conversations and tools over a chat endpoint."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler

import numpy as np
import pytest
from tests.agents.chat import ask, policy
from tests.chat_endpoint import ChatEndpoint, completion, reply

from palaestra.agents import LMPolicy, Request, Team
from palaestra.envs import make
from palaestra.envs.protocol import Observation
from palaestra.envs.roles.toolbox import solve
from palaestra.envs.tool_calls import Call, parse
from palaestra.errors import InputError
from palaestra.learning import demonstrations
from palaestra.play.rollout import rollout

TOOL = {"type": "function", "function": {"name": "search", "description": "Look up.", "parameters": {"type": "object"}}}


TALK = Observation(
    "text for others",
    messages=(
        {"role": "user", "content": "How many?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "call00000", "type": "function", "function": {"name": "search", "arguments": {"query": "mill"}}}
            ],
        },
        {"role": "tool", "content": "37", "tool_call_id": "call00000"},
    ),
    tools=(TOOL,),
)


def calling(arguments: object, text: str | None = None, name: object = "search") -> bytes:
    call = {"id": "x", "type": "function", "function": {"name": name, "arguments": arguments}}
    return completion(text, message={"role": "assistant", "content": text, "tool_calls": [call]})


def test_messages_and_tools_are_sent_as_endpoints_take_them(endpoint: ChatEndpoint) -> None:
    (decision,) = policy(endpoint).act([Request(TALK, "a", np.random.default_rng(0))])
    assert decision.action == "42"
    body = endpoint.bodies[0]
    assert body["tools"] == [TOOL]
    assert body["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"query": "mill"}'
    assert body["messages"][1]["content"] is None
    assert body["messages"][2] == TALK.messages[2]
    assert "tools" not in (ask(policy(endpoint)) and endpoint.bodies[1])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (calling('{"query": "mill"}'), [Call("search", {"query": "mill"})]),
        (calling('{"query": "mill"}', "Let me see."), [Call("search", {"query": "mill"})]),
        (calling({"query": "mill"}), [Call("search", {"query": "mill"})]),
        (calling(""), [Call("search", {})]),
    ],
)
def test_calls_of_an_answer_become_its_text(endpoint: ChatEndpoint, given: bytes, said: list[Call]) -> None:
    endpoint.behave = lambda handler, body: reply(handler, given)
    for format in ("hermes", "json", "xml", "invoke"):
        (decision,) = policy(endpoint, tool_format=format).act([Request(TALK, "a", np.random.default_rng(0))])
        assert decision.error is None
        assert list(parse(decision.action).calls) == said
    assert parse(ask(policy(endpoint))[0].action).text == ("Let me see." if b"Let me" in given else "")


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (calling('{"query": '), "json"),
        (calling("[1]"), "shape"),
        (calling("{}", name=None), "shape"),
        (calling("{}", name={"a": 1}), "shape"),
        (calling(7), "shape"),
    ],
)
def test_malformed_calls_of_an_answer_are_the_envs_to_judge(endpoint: ChatEndpoint, given: bytes, kind: str) -> None:
    endpoint.behave = lambda handler, body: reply(handler, given)
    (decision,) = policy(endpoint, tool_format="json").act([Request(TALK, "a", np.random.default_rng(0))])
    assert decision.error is None
    assert parse(decision.action).error.startswith(kind + ":")


def test_calls_that_are_none_are_no_answer(endpoint: ChatEndpoint) -> None:
    empty = completion(None, message={"role": "assistant", "content": None, "tool_calls": [{"id": "x"}]})
    endpoint.behave = lambda handler, body: reply(handler, empty)
    assert "the answer has no text" in ask(policy(endpoint, retries=0))[0].error
    with pytest.raises(InputError, match="tool_format is 'herms'; did you mean 'hermes'"):
        policy(endpoint, tool_format="herms")


def test_a_served_conversation_is_learned_from(endpoint: ChatEndpoint) -> None:
    """An endpoint uses the tools of the toolbox; a model of one's own gets prompts and answers from the table."""

    def behave(handler: BaseHTTPRequestHandler, body: dict) -> None:
        said = parse(solve(body["messages"]))
        call = said.calls[0] if said.calls else None
        reply(handler, calling(json.dumps(call.arguments), name=call.name) if call else completion(said.text))

    endpoint.behave = behave
    env = make("roles/toolbox", kinds=["search"])
    turns = rollout(env, Team(assistant=policy(endpoint)), groups=2, group_size=1, seed=0)
    assert turns["success"].to_list() == [True] * 4
    assert turns["tool"].to_list() == ["search", None] * 2
    student = LMPolicy.tiny([*turns["observation"], *turns["action"]], chat=True, max_new_tokens=4)
    rows = demonstrations(turns, Team(assistant=student))["lm"]
    read = [student.tokenizer.decode(ids) for ids in rows["prompt_ids"].to_list()]
    assert read[1].startswith(read[0])
    assert read[1].count("<tool_call>") == 1
    assert read[1].endswith("sacks.<|end|><|answer|>assistant\n")
    assert student.tokenizer.decode(rows["action_ids"][0].to_list()) == turns["action"][0] + "<|end|>"
