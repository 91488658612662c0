from __future__ import annotations

import asyncio
import gzip
import json
import random
import re
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler

import numpy as np
import pytest
from tests.agents.chat import KEY, ask, policy
from tests.chat_endpoint import ChatEndpoint, completion, reply

from palaestra.agents import ChatPolicy, Request
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError
from palaestra.play.recording import TurnRecord
from palaestra.play.validation import accept
from palaestra.testing.policy import check_policy


def test_an_answer_with_its_price(endpoint: ChatEndpoint) -> None:
    chat = policy(endpoint, price_in=3.0, price_out=15.0, max_tokens=7, temperature=0.5)
    decision = ask(chat, "what?")[0]
    assert (decision.action, decision.error) == ("42", None)
    assert (decision.tokens_in, decision.tokens_out) == (1000, 10)
    assert decision.cost == pytest.approx((1000 * 3 + 10 * 15) / 1e6)
    assert 0 < decision.duration < 5
    body = endpoint.bodies[0]
    assert body["messages"] == [{"role": "user", "content": "what?"}]
    assert (body["model"], body["max_tokens"], body["temperature"]) == ("m", 7, 0.5)
    assert endpoint.headers == [f"Bearer {KEY}"]
    ask(chat, "a", "b")
    assert chat.totals == pytest.approx(
        {
            "requests": 3, "attempts": 3, "errors": 0, "tokens_in": 3000, "tokens_out": 30, "cost": 3 * 0.00315,
            "unknown": 0, "lost": 0, "known": 0,
        }
    )  # fmt: skip


def test_what_is_not_wanted_is_not_sent_and_what_is_not_answered_is_none(endpoint: ChatEndpoint) -> None:
    endpoint.behave = lambda handler, body: reply(handler, completion(usage=False))
    messages = ({"role": "system", "content": "play"}, {"role": "user", "content": "card?"})
    chat = policy(endpoint, temperature=None, max_tokens=None, seed=False, api_key_env=None, price_in=1.0)
    decision = chat.act([Request(Observation("card?", messages=messages), "player", np.random.default_rng(0))])[0]
    assert endpoint.bodies == [{"model": "m", "messages": list(messages)}]
    assert endpoint.headers == [None]
    assert (decision.tokens_in, decision.tokens_out, decision.cost) == (None, None, None)


def test_half_an_emoji_ends_as_a_question_mark(endpoint: ChatEndpoint) -> None:
    half = completion().replace(b"42", b"4\\ud83d")
    endpoint.behave = lambda handler, body: reply(handler, half)
    assert ask(policy(endpoint))[0].action == "4?"


def test_logprobs_on_request(endpoint: ChatEndpoint) -> None:
    content = [{"token": "4", "logprob": -0.5, "top_logprobs": []}, {"token": "2", "logprob": -1.5, "top_logprobs": []}]
    endpoint.behave = lambda handler, body: reply(handler, completion(logprobs={"content": content}))
    assert ask(policy(endpoint))[0].logprobs is None
    np.testing.assert_array_equal(ask(policy(endpoint, logprobs=True))[0].logprobs, np.array([-0.5, -1.5], np.float32))
    assert [body.get("logprobs") for body in endpoint.bodies] == [None, True]


def test_429_then_an_answer(endpoint: ChatEndpoint) -> None:
    def behave(handler: BaseHTTPRequestHandler, body: dict) -> None:
        reply(handler, *((b"{}", 429) if len(endpoint.bodies) < 3 else ()))

    endpoint.behave = behave
    chat = policy(endpoint)
    assert ask(chat)[0].action == "42"
    assert chat.totals["attempts"] == len(endpoint.bodies) == 3


@pytest.mark.parametrize(
    ("usage", "tokens_in", "tokens_out", "cost", "unknown"),
    [
        ({"prompt_tokens": 10**12, "completion_tokens": 10}, None, 10, None, 1),
        ({"prompt_tokens": -1000, "completion_tokens": -3}, None, None, None, 2),
        ({"prompt_tokens": "1000", "completion_tokens": 10.0}, 1000, 10, 1.02e-3, 0),
        ({"prompt_tokens": 10.5, "completion_tokens": "many"}, None, None, None, 2),
        ({"prompt_tokens": True, "completion_tokens": 1e999}, None, None, None, 2),
        ({"prompt_tokens": None, "completion_tokens": [1]}, None, None, None, 2),
        ("a lot", None, None, None, 2),
    ],
)
@pytest.mark.filterwarnings("ignore:ChatPolicy")
def test_counts_that_cannot_be_are_unknown(
    endpoint: ChatEndpoint,
    usage: object,
    tokens_in: int | None,
    tokens_out: int | None,
    cost: float | None,
    unknown: int,
) -> None:
    endpoint.behave = lambda handler, body: reply(handler, completion(usage=usage))
    chat = policy(endpoint, price_in=1.0, price_out=2.0)
    decision = ask(chat)[0]
    assert (decision.action, decision.error) == ("42", None)
    assert (decision.tokens_in, decision.tokens_out) == (tokens_in, tokens_out)
    assert decision.cost == (None if cost is None else pytest.approx(cost))
    assert chat.totals["unknown"] == unknown
    assert chat.totals["cost"] == pytest.approx(cost or 0)
    row = TurnRecord(turn=0, agent="player")
    assert accept(decision, Observation("hi"), row, 0.0) is None  # and the rollout goes on


def test_counts_that_cannot_be_are_said(endpoint: ChatEndpoint) -> None:
    endpoint.behave = lambda handler, body: reply(
        handler, completion(usage={"prompt_tokens": -1, "completion_tokens": KEY})
    )
    with pytest.warns(UserWarning, match=r"such counts are taken as unknown") as said:
        ask(policy(endpoint))
    texts = [str(each.message) for each in said]
    assert "usage.prompt_tokens is -1;" in texts[0]
    assert "usage.completion_tokens is a str;" in texts[1]
    assert KEY not in " ".join(texts)


def test_every_attempt_is_paid(endpoint: ChatEndpoint) -> None:
    def behave(handler: BaseHTTPRequestHandler, body: dict) -> None:
        reply(handler, completion(None if len(endpoint.bodies) < 3 else "at last"))

    endpoint.behave = behave
    chat = policy(endpoint, price_in=3.0, price_out=15.0)
    decision = ask(chat)[0]
    assert (decision.action, decision.tokens_in, decision.tokens_out) == ("at last", 3000, 30)
    assert decision.cost == pytest.approx(3 * 0.00315)
    endpoint.behave = FAULTS["silent"][0]
    decision = ask(chat)[0]
    assert (decision.tokens_in, decision.tokens_out) == (3000, 30)
    assert decision.error is not None
    assert chat.totals["tokens_in"] == 6000
    assert chat.totals["cost"] == pytest.approx(6 * 0.00315)


def hang(handler: BaseHTTPRequestHandler, body: dict) -> None:
    time.sleep(0.5)


def drip(handler: BaseHTTPRequestHandler, body: dict) -> None:
    reply(handler, b"{", length=1000)
    for _ in range(10):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.05)


def endless(handler: BaseHTTPRequestHandler, body: dict) -> None:
    """What the client does not read stays in the buffers of the two sockets."""
    handler.close_connection = True
    reply(handler, b"{", length=10**9)
    for _ in range(1000):
        handler.wfile.write(b" " * 2**16)


def bomb(handler: BaseHTTPRequestHandler, body: dict) -> None:
    reply(handler, gzip.compress(b" " * 2**26), headers={"content-encoding": "gzip"})


def half(handler: BaseHTTPRequestHandler, body: dict) -> None:
    reply(handler, completion()[:20], length=500)
    handler.close_connection = True


FAULTS = {
    "500": (lambda h, b: reply(h, b"oops", 500, kind="text/plain"), "StatusError: HTTP 500: oops"),
    "503": (lambda h, b: reply(h, b"{}", 503), "StatusError: HTTP 503"),
    "garbage": (
        lambda h, b: reply(h, b'{"choices": [{"mes'),
        "UnusableAnswerError: the answer is no chat completion (not JSON",
    ),
    "page": (
        lambda h, b: reply(h, b"<html>", kind="text/html"),
        "ProxyAnswerError: no chat completion came with status 200 but text/html: '<html>'",
    ),
    "null": (lambda h, b: reply(h, b"null"), "UnusableAnswerError: the answer has no choices"),
    "strange": (lambda h, b: reply(h, b'{"choices": {"a": 1}}'), "UnusableAnswerError: the answer has no choices"),
    "empty": (lambda h, b: reply(h, b'{"id": "1", "choices": []}'), "UnusableAnswerError: the answer has no choices"),
    "silent": (lambda h, b: reply(h, completion(None)), "UnusableAnswerError: the answer has no text"),
    "half": (half, "ConnectionResetError: the connection broke before the answer was whole"),
    "endless": (
        endless,
        "UnusableAnswerError: the answer says that it has 1000000000 bytes; 8388608 are read at most",
    ),
    "bomb": (bomb, "UnusableAnswerError: the answer is longer than 8 MiB"),
    "long complaint": (
        lambda h, b: reply(h, json.dumps({"error": {"message": "x" * 10**6}}).encode(), 500),
        "StatusError: HTTP 500: xxx",
    ),
    "hang": (hang, "TimeoutError: no whole answer within 0.3 s"),
    "drip": (drip, "TimeoutError: no whole answer within 0.3 s"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_tried_again_and_ends_as_an_error(endpoint: ChatEndpoint, fault: str) -> None:
    endpoint.behave, message = FAULTS[fault]
    chat = policy(endpoint, timeout=0.3 if fault in ("hang", "drip") else 5)
    decision = ask(chat)[0]
    assert decision.error is not None
    assert decision.error.startswith(message)
    assert decision.error.endswith(f"[model 'm' at {endpoint.url}]")
    assert len(decision.error) <= 300
    assert decision.action == ""
    assert len(endpoint.bodies) == chat.totals["attempts"] == 3
    assert chat.totals["errors"] == 1


def test_nobody_listens(endpoint: ChatEndpoint) -> None:
    chat = policy(endpoint, patience=0.1)
    endpoint.close()
    began = time.monotonic()
    for decision in ask(chat, *"abcdefgh"):
        assert re.match(
            r"OutageError: nobody has answered for 0\.1\d* s; the last failure: NotSentError: no connection",
            decision.error,
        )
        assert decision.error.endswith(f"[model 'm' at {endpoint.url}]")
    assert 0.1 <= time.monotonic() - began < 1
    assert chat.totals["attempts"] <= 8 + 25  # all at once, then probes
    assert chat.totals["lost"] == 0  # nobody has seen a request
    asked = chat.totals["attempts"]
    ask(chat, *"abcdefgh")
    assert chat.totals["attempts"] == asked + 1  # it is known to be absent


@pytest.mark.parametrize("fault", ["503", "504", "page"])
def test_an_outage_pauses_all_requests_and_none_fails(endpoint: ChatEndpoint, fault: str) -> None:
    """It takes longer than all pauses of two retries together."""
    ends = time.monotonic() + 0.4
    missed = []

    def behave(handler: BaseHTTPRequestHandler, body: dict) -> None:
        if time.monotonic() > ends:
            return reply(handler)
        missed.append(body)
        if fault == "504":
            return reply(handler, b"{}", 504)
        return FAULTS[fault][0](handler, body)

    endpoint.behave = behave
    chat = policy(endpoint, longest_wait=0.05, concurrency=4)
    decisions = ask(chat, *[str(number) for number in range(40)])
    assert [each.error for each in decisions] == [None] * 40
    assert len(missed) <= 4 + 3 + 20
    assert chat.totals["lost"] == (0 if fault == "503" else len(missed))
    assert ask(chat)[0].error is None


@pytest.mark.parametrize("code", [400, 401, 403, 404, 422])
def test_what_would_fail_again_is_not_tried_again(endpoint: ChatEndpoint, code: int) -> None:
    endpoint.behave = lambda handler, body: reply(handler, b'{"error": {"message": "no"}}', code)
    assert f"HTTP {code}: no" in ask(policy(endpoint))[0].error
    assert len(endpoint.bodies) == 1


def said(content: object, why: str = "stop", **more: object) -> bytes:
    return completion(finish_reason=why, message={"role": "assistant", "content": content, **more})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            said(None, "length", reasoning_content="Okay"),
            "cut off at max_tokens=512 before any text (thinking?): raise",
        ),
        (said(None, refusal="I cannot help"), "the model refused: I cannot help"),
        (said(None, "content_filter"), "the endpoint's filter took out the answer"),
        (b'{"error": {"message": "no credits", "code": 402}}', "the answer has no choices: no credits"),
    ],
)
def test_an_answer_that_is_final_is_paid_once_and_says_why(endpoint: ChatEndpoint, data: bytes, message: str) -> None:
    endpoint.behave = lambda handler, body: reply(handler, data)
    assert ask(policy(endpoint))[0].error.startswith(f"PolicyError: {message}")
    assert len(endpoint.bodies) == 1


def test_an_error_in_place_of_an_answer_that_may_pass_is_tried_again(endpoint: ChatEndpoint) -> None:
    data = json.dumps({"error": {"message": "slow down", "code": 429}}).encode()
    endpoint.behave = lambda handler, body: reply(handler, data if len(endpoint.bodies) < 3 else completion())
    assert ask(policy(endpoint))[0].action == "42"


def test_an_answer_in_parts(endpoint: ChatEndpoint) -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "42"}]
    endpoint.behave = lambda handler, body: reply(handler, said(parts))
    assert [ask(policy(endpoint))[0].action, len(endpoint.bodies)] == ["42", 1]


def test_a_system_message_that_cannot_be_moved_is_refused_once(endpoint: ChatEndpoint) -> None:
    data = b'{"error": {"message": "System role not supported"}}'
    endpoint.behave = lambda handler, body: reply(handler, data, 400 if len(endpoint.bodies) < 9 else 500)
    told = tuple({"role": role, "content": role} for role in ("system", "assistant", "user"))
    (decision,) = policy(endpoint).act([Request(Observation("", messages=told), "a", np.random.default_rng(0))])
    assert "System role not supported" in decision.error
    assert len(endpoint.bodies) == 1


def test_a_model_that_wants_another_name_for_max_tokens(endpoint: ChatEndpoint) -> None:
    refused = b'{"error": {"message": "Unsupported: \'max_tokens\'. Use \'max_completion_tokens\' instead."}}'
    endpoint.behave = lambda handler, body: reply(handler, *((refused, 400) if "max_tokens" in body else ()))
    chat = policy(endpoint, max_tokens=7)
    assert [ask(chat)[0].action, ask(chat)[0].action] == ["42", "42"]
    assert [body.get("max_completion_tokens") for body in endpoint.bodies] == [None, 7, 7]


def test_one_bad_request_does_not_touch_the_others(endpoint: ChatEndpoint) -> None:
    def behave(handler: BaseHTTPRequestHandler, body: dict) -> None:
        text = body["messages"][0]["content"]
        reply(handler, *((b"{}", 500) if text == "bad" else (completion(f"to {text}"),)))

    endpoint.behave = behave
    decisions = ask(policy(endpoint), "a", "bad", "c")
    assert [d.action for d in decisions] == ["to a", "", "to c"]
    assert [d.error is None for d in decisions] == [True, False, True]


def test_concurrency_is_limited_and_used(endpoint: ChatEndpoint) -> None:
    def behave(handler: BaseHTTPRequestHandler, body: dict) -> None:
        time.sleep(0.03)
        reply(handler)

    endpoint.behave = behave
    ask(policy(endpoint, concurrency=3), *"abcdefghijkl")
    assert endpoint.most == 3
    assert len(endpoint.bodies) == 12


def test_settings_that_cannot_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ABSENT_KEY", raising=False)
    with pytest.raises(InputError, match=r"ABSENT_KEY is not set: export it, or pass api_key_env=None"):
        ChatPolicy("m", api_key_env="ABSENT_KEY")
    for options, message in {
        ("concurrency", 0): "concurrency is 0, expected a whole number of at least 1",
        ("timeout", "soon"): "timeout is 'soon', expected a number above 0",
        ("retries", 1.5): "retries is 1.5, expected a whole number of at least 0",
        ("price_in", -1): "price_in is -1, expected a number of at least 0 or None",
        ("temperature", float("nan")): "temperature is nan",
        ("base_url", "localhost:8000"): "base_url is 'localhost://8000', expected something like",
        ("base_url", 5): "base_url is 'int', expected something like",
    }.items():
        with pytest.raises(InputError, match=re.escape(message)):
            ChatPolicy("m", api_key_env=None, **{options[0]: options[1]})
    monkeypatch.setenv("OPENAI_BASE_URL", "localhost:8000/v1")
    with pytest.raises(InputError, match="OPENAI_BASE_URL is 'localhost:"):
        ChatPolicy("m", api_key_env=None)


@pytest.mark.parametrize(
    ("headers", "least"),
    [
        ({"retry-after": "0.3"}, 0.3),
        ({"retry-after-ms": "300"}, 0.3),
        ({"retry-after-ms": "300", "retry-after": "soon"}, 0.3),
        ({"retry-after": formatdate(4e9, usegmt=True)}, 0.4),
        ({"retry-after": "1e9"}, 0.0),
        ({"retry-after": "9" * 12}, 0.4),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": formatdate(0, usegmt=True)}, 0.0),
    ],
)
def test_an_endpoint_says_when_to_come_back(endpoint: ChatEndpoint, headers: dict, least: float) -> None:
    endpoint.behave = lambda handler, body: reply(handler, b"{}", 429, headers=headers)
    ask(policy(endpoint, retries=1, longest_wait=0.4))
    assert least <= endpoint.times[1] - endpoint.times[0] < least + 0.25


def test_pauses_grow_are_drawn_from_no_shared_generator_and_heed_retry_after(endpoint: ChatEndpoint) -> None:
    endpoint.behave = lambda handler, body: reply(handler, b"{}", 429, headers={"retry-after": "0.2"})
    random.seed(0)
    state, rng = random.getstate(), np.random.default_rng(0)
    policy(endpoint, retries=1, longest_wait=0.25).act([Request(Observation("hi"), "player", rng)])
    assert random.getstate() == state
    once = np.random.default_rng(0)
    once.integers(2**31)  # the seed that is sent
    assert rng.random() == once.random()
    assert 0.2 <= endpoint.times[1] - endpoint.times[0] < 2

    class State:
        outcome = None

        def __init__(self, attempt_number: int) -> None:
            self.attempt_number = attempt_number

    chat = policy(endpoint, wait=1.0, longest_wait=6.0)
    for attempt, most in ((1, 1), (2, 2), (3, 4), (4, 6), (9, 6)):
        pauses = [chat._pause(State(attempt)) for _ in range(300)]  # type: ignore[arg-type]
        assert 0.9 * most < max(pauses) <= most
        assert min(pauses) < 0.1 * most


def test_it_works_inside_a_running_event_loop(endpoint: ChatEndpoint) -> None:
    async def notebook() -> str:
        return ask(policy(endpoint))[0].action

    assert asyncio.run(notebook()) == "42"


def test_it_keeps_the_promises_of_a_policy_if_the_endpoint_honours_seeds(endpoint: ChatEndpoint) -> None:
    endpoint.behave = lambda handler, body: reply(
        handler, completion(f"{body['messages'][0]['content']} {body['seed']}")
    )
    check_policy(policy(endpoint), [Observation(text) for text in "abc"])
    assert policy(endpoint).act([]) == []


@pytest.mark.parametrize(
    ("said", "finish"),
    [("stop", "stop"), ("length", "length"), ("tool_calls", "tool"), ("abort", "aborted"), (None, None), (7, None)],
)
def test_why_an_answer_ended_is_in_the_table(endpoint: ChatEndpoint, said: object, finish: str | None) -> None:
    endpoint.behave = lambda handler, body: reply(handler, completion(finish_reason=said))
    decision = ask(policy(endpoint))[0]
    assert (decision.action, decision.finish, decision.error) == ("42", finish, None)
    row = TurnRecord("player")
    accept(decision, Observation("hi"), row, 0.0)
    assert row.finish == finish
