from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from palaestra.agents import ChatPolicy, Request
from palaestra.envs.base import Observation
from palaestra.errors import InputError
from palaestra.testing.policy import check_policy

KEY = "sk-very-secret-0123456789"


def completion(text: str | None = " 42\n", usage: bool = True, **choice: object) -> bytes:
    body = {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}, **choice}],
    }
    if usage:
        body["usage"] = {"prompt_tokens": 1000, "completion_tokens": 10, "total_tokens": 1010}
    return json.dumps(body).encode()


class Endpoint:
    """A real HTTP server whose `behave(handler, body)` is set by each test; keeps what it was sent."""

    def __init__(self) -> None:
        endpoint = self
        self.bodies: list[dict] = []
        self.headers: list[str] = []
        self.times: list[float] = []
        self.now = self.most = 0
        self.lock = threading.Lock()
        self.behave: Callable[[BaseHTTPRequestHandler, dict], None] = lambda handler, body: reply(handler)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with endpoint.lock:
                    endpoint.bodies.append(body)
                    endpoint.headers.append(self.headers["authorization"])
                    endpoint.times.append(time.monotonic())
                    endpoint.now += 1
                    endpoint.most = max(endpoint.most, endpoint.now)
                try:
                    endpoint.behave(self, body)
                except OSError:
                    pass  # the client gave up
                finally:
                    with endpoint.lock:
                        endpoint.now -= 1

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/v1"


def reply(handler: BaseHTTPRequestHandler, data: bytes = completion(), code: int = 200, **options: object) -> None:
    handler.send_response(code)
    handler.send_header("content-type", str(options.get("kind", "application/json")))
    handler.send_header("content-length", str(options.get("length", len(data))))
    for name, value in dict(options.get("headers", {})).items():  # type: ignore[call-overload]
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(data)


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("TEST_KEY", KEY)
    endpoint = Endpoint()
    yield endpoint
    endpoint.server.shutdown()
    endpoint.server.server_close()


def policy(endpoint: Endpoint, **options: object) -> ChatPolicy:
    settings = {"base_url": endpoint.url, "api_key_env": "TEST_KEY", "wait": 0.001, "longest_wait": 0.01, "retries": 2}
    return ChatPolicy("m", **settings | options)  # type: ignore[arg-type]


def ask(chat: ChatPolicy, *texts: str) -> list:
    return chat.act(
        [Request(Observation(t), "player", np.random.default_rng(i)) for i, t in enumerate(texts or ("hi",))]
    )


def test_an_answer_with_its_price(endpoint: Endpoint) -> None:
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
        {"requests": 3, "attempts": 3, "errors": 0, "tokens_in": 3000, "tokens_out": 30, "cost": 3 * 0.00315}
    )


def test_what_is_not_wanted_is_not_sent_and_what_is_not_answered_is_none(endpoint: Endpoint) -> None:
    endpoint.behave = lambda handler, body: reply(handler, completion(usage=False))
    messages = ({"role": "system", "content": "play"}, {"role": "user", "content": "card?"})
    chat = policy(endpoint, temperature=None, max_tokens=None, seed=False, api_key_env=None, price_in=1.0)
    decision = chat.act([Request(Observation("card?", messages=messages), "player", np.random.default_rng(0))])[0]
    assert endpoint.bodies == [{"model": "m", "messages": list(messages)}]
    assert endpoint.headers == ["Bearer none"]
    assert (decision.tokens_in, decision.tokens_out, decision.cost) == (None, None, None)


def test_half_an_emoji_ends_as_a_question_mark(endpoint: Endpoint) -> None:
    half = completion().replace(b"42", b"4\\ud83d")
    endpoint.behave = lambda handler, body: reply(handler, half)
    assert ask(policy(endpoint))[0].action == "4?"


def test_logprobs_on_request(endpoint: Endpoint) -> None:
    content = [{"token": "4", "logprob": -0.5, "top_logprobs": []}, {"token": "2", "logprob": -1.5, "top_logprobs": []}]
    endpoint.behave = lambda handler, body: reply(handler, completion(logprobs={"content": content}))
    assert ask(policy(endpoint))[0].logprobs is None
    np.testing.assert_array_equal(ask(policy(endpoint, logprobs=True))[0].logprobs, np.array([-0.5, -1.5], np.float32))
    assert [body.get("logprobs") for body in endpoint.bodies] == [None, True]


def test_429_then_an_answer(endpoint: Endpoint) -> None:
    def behave(handler: BaseHTTPRequestHandler, body: dict) -> None:
        reply(handler, *((b"{}", 429) if len(endpoint.bodies) < 3 else ()))

    endpoint.behave = behave
    chat = policy(endpoint)
    assert ask(chat)[0].action == "42"
    assert chat.totals["attempts"] == len(endpoint.bodies) == 3


def hang(handler: BaseHTTPRequestHandler, body: dict) -> None:
    time.sleep(0.5)


def drip(handler: BaseHTTPRequestHandler, body: dict) -> None:
    reply(handler, b"{", length=1000)
    for _ in range(10):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.05)


def half(handler: BaseHTTPRequestHandler, body: dict) -> None:
    reply(handler, completion()[:20], length=500)
    handler.close_connection = True


FAULTS = {
    "500": (lambda h, b: reply(h, b"oops", 500, kind="text/plain"), "InternalServerError: Error code: 500"),
    "503": (lambda h, b: reply(h, b"{}", 503), "InternalServerError: Error code: 503"),
    "garbage": (lambda h, b: reply(h, b'{"choices": [{"mes'), "UnusableAnswerError: not JSON"),
    "page": (lambda h, b: reply(h, b"<html>", kind="text/html"), "UnusableAnswerError: the answer has no choices"),
    "null": (lambda h, b: reply(h, b"null"), "UnusableAnswerError: the answer has no choices"),
    "strange": (lambda h, b: reply(h, b'{"choices": {"a": 1}}'), "UnusableAnswerError: the answer has no choices"),
    "empty": (lambda h, b: reply(h, b'{"id": "1", "choices": []}'), "UnusableAnswerError: the answer has no choices"),
    "silent": (lambda h, b: reply(h, completion(None)), "UnusableAnswerError: the answer has no text"),
    "half": (half, "APIConnectionError: Connection error. (RemoteProtocolError: peer closed connection"),
    "hang": (hang, "TimeoutError: no whole answer within 0.1 s"),
    "drip": (drip, "TimeoutError: no whole answer within 0.1 s"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_tried_again_and_ends_as_an_error(endpoint: Endpoint, fault: str) -> None:
    endpoint.behave, message = FAULTS[fault]
    chat = policy(endpoint, timeout=0.1 if fault in ("hang", "drip") else 5)
    decision = ask(chat)[0]
    assert decision.error is not None
    assert decision.error.startswith(message)
    assert decision.action == ""
    assert len(endpoint.bodies) == chat.totals["attempts"] == 3
    assert chat.totals["errors"] == 1


def test_nobody_listens(endpoint: Endpoint) -> None:
    chat = policy(endpoint)
    endpoint.server.shutdown()
    endpoint.server.server_close()
    assert ask(chat)[0].error.startswith("APIConnectionError: Connection error. (ConnectError")
    assert chat.totals["attempts"] == 3


@pytest.mark.parametrize("code", [400, 401, 403, 404, 422])
def test_what_would_fail_again_is_not_tried_again(endpoint: Endpoint, code: int) -> None:
    endpoint.behave = lambda handler, body: reply(handler, b'{"error": {"message": "no"}}', code)
    assert f"Error code: {code}" in ask(policy(endpoint))[0].error
    assert len(endpoint.bodies) == 1


def test_one_bad_request_does_not_touch_the_others(endpoint: Endpoint) -> None:
    def behave(handler: BaseHTTPRequestHandler, body: dict) -> None:
        text = body["messages"][0]["content"]
        reply(handler, *((b"{}", 500) if text == "bad" else (completion(f"to {text}"),)))

    endpoint.behave = behave
    decisions = ask(policy(endpoint), "a", "bad", "c")
    assert [d.action for d in decisions] == ["to a", "", "to c"]
    assert [d.error is None for d in decisions] == [True, False, True]


def test_concurrency_is_limited_and_used(endpoint: Endpoint) -> None:
    def behave(handler: BaseHTTPRequestHandler, body: dict) -> None:
        time.sleep(0.03)
        reply(handler)

    endpoint.behave = behave
    ask(policy(endpoint, concurrency=3), *"abcdefghijkl")
    assert endpoint.most == 3
    assert len(endpoint.bodies) == 12


def test_the_key_never_leaves(
    endpoint: Endpoint, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    endpoint.behave = lambda handler, body: reply(
        handler, json.dumps({"error": {"message": f"bad key {handler.headers['authorization']}"}}).encode(), 401
    )
    chat = policy(endpoint)
    decision = ask(chat)[0]
    assert "bad key Bearer ***" in decision.error
    out, err = capfd.readouterr()
    for text in (repr(decision), repr(chat), str(vars(chat)), caplog.text, out, err):
        assert KEY not in text
        assert KEY[3:] not in text


@pytest.mark.parametrize("given", [KEY, "hf_abcDEF123456", "AIzaSyA-1234", "sk_live_0123", "my key", ""])
def test_a_key_in_place_of_its_name_is_refused_and_not_repeated(given: str) -> None:
    with pytest.raises(InputError, match="NAME of an environment variable") as caught:
        ChatPolicy("m", api_key_env=given)
    assert not given or given not in str(caught.value)


def test_settings_that_cannot_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ABSENT_KEY", raising=False)
    with pytest.raises(InputError, match=r"ABSENT_KEY is not set: export it, or pass api_key_env=None"):
        ChatPolicy("m", api_key_env="ABSENT_KEY")
    with pytest.raises(InputError, match="concurrency=0"):
        ChatPolicy("m", api_key_env=None, concurrency=0)


def test_pauses_grow_are_drawn_from_no_shared_generator_and_heed_retry_after(endpoint: Endpoint) -> None:
    def behave(handler: BaseHTTPRequestHandler, body: dict) -> None:
        reply(handler, b"{}", 429, headers={"retry-after": "0.2"})

    endpoint.behave = behave
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


def test_it_works_inside_a_running_event_loop(endpoint: Endpoint) -> None:
    async def notebook() -> str:
        return ask(policy(endpoint))[0].action

    assert asyncio.run(notebook()) == "42"


def test_it_keeps_the_promises_of_a_policy_if_the_endpoint_honours_seeds(endpoint: Endpoint) -> None:
    endpoint.behave = lambda handler, body: reply(
        handler, completion(f"{body['messages'][0]['content']} {body['seed']}")
    )
    check_policy(policy(endpoint), [Observation(text) for text in "abc"])
    assert policy(endpoint).act([]) == []
