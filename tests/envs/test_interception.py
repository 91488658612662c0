"""The endpoint that a program asks, over HTTP."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any
from urllib.error import HTTPError

import pytest

from palaestra.envs.interception import Intercepted, Interceptor

TOOL = {"type": "function", "function": {"name": "say", "parameters": {"properties": {"t": {"type": "string"}}}}}
ASKED = {"model": "m", "messages": [{"role": "user", "content": "hm?"}], "tools": [TOOL]}
Post = Callable[..., tuple[int, Any]]


@pytest.fixture
def post() -> Iterator[Post]:
    """(status, body) of a request; `answer` is what is said to it, `seen` gets it."""
    arrived: SimpleQueue[Intercepted] = SimpleQueue()
    served = Interceptor(arrived, 20)

    def send(body: dict[str, Any]) -> tuple[int, Any]:
        request = urllib.request.Request(f"{served.url}/chat/completions", json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request) as response:
                return response.status, response.read()
        except HTTPError as error:
            with error:
                return error.code, error.read()

    with ThreadPoolExecutor(1) as pool:

        def ask(body: dict[str, Any], answer: str | None = None, seen: list[Intercepted] | None = None) -> Any:
            coming = pool.submit(send, body)
            if answer is not None:
                call = arrived.get(timeout=20)
                call.answer(answer)
                if seen is not None:
                    seen.append(call)
            return coming.result(20)

        yield ask
    served.close()


def test_half_a_character_in_a_call_reaches_the_program(post: Post) -> None:
    said = '<tool_call>{"name": "say", "arguments": {"t": "hi \\ud83d"}}</tool_call>'
    for stream in (False, True):
        code, body = post({**ASKED, "stream": stream}, said)
        assert code == 200
        assert b"hi ?" in body


def test_calls_of_the_history_are_as_chat_templates_take_them(post: Post) -> None:
    seen: list[Intercepted] = []
    for given, found in (('{"t": "a"}', {"t": "a"}), ("", {}), ("{", "{"), ("[1]", "[1]"), ({"t": "a"}, {"t": "a"})):
        call = {"id": "x", "type": "function", "function": {"name": "say", "arguments": given}}
        history = [*ASKED["messages"], {"role": "assistant", "content": None, "tool_calls": [call]}]
        post({**ASKED, "messages": history}, "yes", seen)
        (told,) = seen[-1].messages[1]["tool_calls"]
        assert told == {**call, "function": {"name": "say", "arguments": found}}


def test_a_form_of_answers_is_refused_and_not_dropped(post: Post) -> None:
    assert post({**ASKED, "response_format": {"type": "text"}}, "yes")[0] == 200
    code, body = post({**ASKED, "response_format": {"type": "json_object"}})
    assert code == 400
    assert b"response_format: answers are held to no form here" in body


def test_only_text_is_read_and_all_else_is_refused(post: Post) -> None:
    parts: list[dict[str, Any]] = [{"type": "text", "text": "What is "}, {"type": "text", "text": "this?"}]
    seen: list[Intercepted] = []
    assert post({"messages": [{"role": "user", "content": parts}]}, "yes", seen)[0] == 200
    assert seen[0].messages == ({"role": "user", "content": "What is this?"},)
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    code, body = post({"messages": [{"role": "user", "content": [*parts, picture]}]})
    assert code == 400
    assert b"a message has a part of type 'image_url': only text is read here" in body


def test_a_request_may_choose_what_is_called() -> None:
    other = {"type": "function", "function": {"name": "other"}}
    named = {"type": "function", "function": {"name": "say"}}
    for choice, offered in (("none", ()), (named, (TOOL,)), ("auto", (TOOL, other)), (None, (TOOL, other))):
        request = Intercepted({**ASKED, "tools": [TOOL, other], "tool_choice": choice})
        assert request.tools == offered


def test_what_is_not_had_is_refused_and_usage_comes_if_asked_for(post: Post) -> None:
    for name, value in (("logprobs", True), ("functions", [{"name": "f"}])):
        code, body = post({**ASKED, name: value})
        assert code == 400
        assert f"{name}: ".encode() in body
    assert b'"usage"' not in post({**ASKED, "stream": True}, "yes")[1]
    told = post({**ASKED, "stream": True, "stream_options": {"include_usage": True}}, "yes")[1]
    last = json.loads(told.split(b"data: ")[-2])
    assert last["choices"] == []
    assert last["usage"]["total_tokens"] == 0
