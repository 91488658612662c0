from __future__ import annotations

import asyncio
import base64
import gzip
import json
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import numpy as np
import polars as pl
import pytest

from palaestra.agents import ChatPolicy, LMPolicy, Request, Team
from palaestra.envs import make
from palaestra.envs.base import Observation, StepResult
from palaestra.envs.roles.toolbox import solve
from palaestra.envs.tool_calls import Call, parse
from palaestra.errors import InputError
from palaestra.interface import cli
from palaestra.learning import demonstrations
from palaestra.play.boundary import accept
from palaestra.play.recording import Row
from palaestra.play.rollout import rollout
from palaestra.testing.policy import check_policy

KEY = "sk-very-secret-0123456789"


def completion(text: str | None = " 42\n", usage: object = True, **choice: object) -> bytes:
    body = {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}, **choice}],
    }
    if usage:
        usual = {"prompt_tokens": 1000, "completion_tokens": 10, "total_tokens": 1010}
        body["usage"] = usual if usage is True else usage
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
        {
            "requests": 3, "attempts": 3, "errors": 0, "tokens_in": 3000, "tokens_out": 30, "cost": 3 * 0.00315,
            "unknown": 0,
        }
    )  # fmt: skip


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
    endpoint: Endpoint, usage: object, tokens_in: int | None, tokens_out: int | None, cost: float | None, unknown: int
) -> None:
    endpoint.behave = lambda handler, body: reply(handler, completion(usage=usage))
    chat = policy(endpoint, price_in=1.0, price_out=2.0)
    decision = ask(chat)[0]
    assert (decision.action, decision.error) == ("42", None)
    assert (decision.tokens_in, decision.tokens_out) == (tokens_in, tokens_out)
    assert decision.cost == (None if cost is None else pytest.approx(cost))
    assert chat.totals["unknown"] == unknown
    assert chat.totals["cost"] == pytest.approx(cost or 0)
    row = Row(turn=0, agent="player")
    assert accept(decision, Observation("hi"), row, 0.0) is None  # and the rollout goes on


def test_counts_that_cannot_be_are_said(endpoint: Endpoint) -> None:
    endpoint.behave = lambda handler, body: reply(
        handler, completion(usage={"prompt_tokens": -1, "completion_tokens": KEY})
    )
    with pytest.warns(UserWarning, match=r"such counts are taken as unknown") as said:
        ask(policy(endpoint))
    texts = [str(each.message) for each in said]
    assert "usage.prompt_tokens is -1;" in texts[0]
    assert "usage.completion_tokens is a str;" in texts[1]
    assert KEY not in " ".join(texts)


def test_every_attempt_is_paid(endpoint: Endpoint) -> None:
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
    "500": (lambda h, b: reply(h, b"oops", 500, kind="text/plain"), "InternalServerError: Error code: 500"),
    "503": (lambda h, b: reply(h, b"{}", 503), "InternalServerError: Error code: 503"),
    "garbage": (lambda h, b: reply(h, b'{"choices": [{"mes'), "UnusableAnswerError: not JSON"),
    "page": (lambda h, b: reply(h, b"<html>", kind="text/html"), "UnusableAnswerError: the answer has no choices"),
    "null": (lambda h, b: reply(h, b"null"), "UnusableAnswerError: the answer has no choices"),
    "strange": (lambda h, b: reply(h, b'{"choices": {"a": 1}}'), "UnusableAnswerError: the answer has no choices"),
    "empty": (lambda h, b: reply(h, b'{"id": "1", "choices": []}'), "UnusableAnswerError: the answer has no choices"),
    "silent": (lambda h, b: reply(h, completion(None)), "UnusableAnswerError: the answer has no text"),
    "half": (half, "APIConnectionError: Connection error. (RemoteProtocolError: peer closed connection"),
    "endless": (
        endless,
        "UnusableAnswerError: the answer is longer than 8 MiB",
    ),
    "bomb": (bomb, "UnusableAnswerError: the answer is longer than 8 MiB"),
    "long complaint": (
        lambda h, b: reply(h, json.dumps({"error": {"message": "x" * 10**6}}).encode(), 500),
        "InternalServerError: Error code: 500 - xxx",
    ),
    "hang": (hang, "TimeoutError: no whole answer within 0.3 s"),
    "drip": (drip, "TimeoutError: no whole answer within 0.3 s"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_tried_again_and_ends_as_an_error(endpoint: Endpoint, fault: str) -> None:
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


FORMS = (KEY, KEY.upper(), quote(KEY, safe=""), base64.b64encode(KEY.encode()).decode())


@pytest.mark.parametrize("form", range(len(FORMS)))
@pytest.mark.parametrize("code", [200, 401, 500])
def test_the_key_never_leaves(
    endpoint: Endpoint, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture, code: int, form: int
) -> None:
    """Not in an answer, an error or a header that echoes it, nor in what is logged of them."""
    caplog.set_level("DEBUG")
    caplog.set_level("DEBUG", logger="openai")

    def behave(handler: BaseHTTPRequestHandler, body: dict) -> None:
        assert handler.headers["authorization"] == f"Bearer {KEY}"
        said = f"bad key Bearer {FORMS[form]}"
        data = completion(said) if code == 200 else json.dumps({"error": {"message": said}}).encode()
        reply(handler, data, code, headers={"x-echo": FORMS[form]})

    endpoint.behave = behave
    chat = policy(endpoint)
    decision = ask(chat)[0]
    assert "bad key Bearer ***" in (decision.error or decision.action)
    out, err = capfd.readouterr()
    for text in (repr(decision), repr(chat), str(vars(chat)), caplog.text, out, err):
        for secret in FORMS:
            assert secret not in text
            assert secret[3:] not in text


class Echo:
    """One question; what is answered is repeated to whoever reads the metadata."""

    agents, task = ("player",), "echo"

    def reset(self, seed: int) -> dict[str, Observation]:
        return {"player": Observation(f"question {seed}")}

    def step(self, actions: dict) -> StepResult:
        return StepResult({}, {"player": 1.0}, terminated=True, info={"success": True, "heard": actions["player"]})


def test_a_table_of_turns_and_its_page_hold_no_key(endpoint: Endpoint, tmp_path: Path) -> None:
    def behave(handler: BaseHTTPRequestHandler, body: dict) -> None:
        said = f"0 {handler.headers['authorization']}"
        failed = (json.dumps({"error": {"message": said}}).encode(), 400)
        reply(handler, *(failed if len(endpoint.bodies) % 2 else (completion(said),)))

    endpoint.behave = behave
    turns = rollout(Echo, Team(player=policy(endpoint)), groups=4, group_size=2, retries=0)
    assert turns["error"].null_count() not in (0, len(turns))
    turns.save(tmp_path / "turns.parquet")
    stored = str(pl.read_parquet(tmp_path / "turns.parquet").to_dicts())
    assert "***" in stored
    assert KEY not in stored
    with pytest.raises(SystemExit):
        cli.main(["evaluate", str(tmp_path / "turns.parquet"), "--report", str(tmp_path / "report.html")])
    assert KEY not in (tmp_path / "report.html").read_text()


def test_a_placeholder_is_no_secret(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "EMPTY")
    endpoint.behave = lambda handler, body: reply(handler, completion("the box is empty"))
    assert ask(policy(endpoint))[0].action == "the box is empty"


@pytest.mark.parametrize("given", [f"http://user:{KEY}@127.0.0.1:1/v1", f"https://{KEY}@host/v1"])
def test_credentials_in_an_address_are_refused_and_not_repeated(given: str) -> None:
    with pytest.raises(InputError, match=r"base_url holds credentials: write 'https?://(127|host)") as caught:
        ChatPolicy("m", base_url=given, api_key_env=None)
    assert KEY not in str(caught.value)


def test_errors_do_not_repeat_the_query_of_an_address(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint.behave = lambda handler, body: reply(handler, b"{}", 500)
    monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url)
    assert ask(policy(endpoint, base_url=None))[0].error.endswith(f"at {endpoint.url}]")
    error = ask(policy(endpoint, base_url=f"{endpoint.url}?key={KEY}"))[0].error
    assert error.endswith(f"at {endpoint.url}]")
    assert KEY not in error


@pytest.mark.parametrize("given", [KEY, "hf_abcDEF123456", "AIzaSyA-1234", "sk_live_0123", "my key", ""])
def test_a_key_in_place_of_its_name_is_refused_and_not_repeated(given: str) -> None:
    with pytest.raises(InputError, match="NAME of an environment variable") as caught:
        ChatPolicy("m", api_key_env=given)
    assert not given or given not in str(caught.value)


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
def test_an_endpoint_says_when_to_come_back(endpoint: Endpoint, headers: dict, least: float) -> None:
    endpoint.behave = lambda handler, body: reply(handler, b"{}", 429, headers=headers)
    ask(policy(endpoint, retries=1, longest_wait=0.4))
    assert least <= endpoint.times[1] - endpoint.times[0] < least + 0.25


def test_pauses_grow_are_drawn_from_no_shared_generator_and_heed_retry_after(endpoint: Endpoint) -> None:
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


# -- conversations and tools ------------------------------------------------------------------------------------------

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


def test_messages_and_tools_are_sent_as_endpoints_take_them(endpoint: Endpoint) -> None:
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
def test_calls_of_an_answer_become_its_text(endpoint: Endpoint, given: bytes, said: list[Call]) -> None:
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
def test_malformed_calls_of_an_answer_are_the_envs_to_judge(endpoint: Endpoint, given: bytes, kind: str) -> None:
    endpoint.behave = lambda handler, body: reply(handler, given)
    (decision,) = policy(endpoint, tool_format="json").act([Request(TALK, "a", np.random.default_rng(0))])
    assert decision.error is None
    assert parse(decision.action).error.startswith(kind + ":")


def test_calls_that_are_none_are_no_answer(endpoint: Endpoint) -> None:
    empty = completion(None, message={"role": "assistant", "content": None, "tool_calls": [{"id": "x"}]})
    endpoint.behave = lambda handler, body: reply(handler, empty)
    assert "the answer has no text" in ask(policy(endpoint, retries=0))[0].error
    with pytest.raises(InputError, match="tool_format is 'herms'; did you mean 'hermes'"):
        policy(endpoint, tool_format="herms")


def test_a_served_conversation_is_learned_from(endpoint: Endpoint) -> None:
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
