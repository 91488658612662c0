"""The HTTP client and the dialects: what is sent, what is refused, and in which words."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from palaestra.agents.backends import endpoint
from palaestra.agents.backends.server import (
    VLLM,
    AbsentError,
    Client,
    GoneError,
    HttpCall,
    ServedModel,
    ServerError,
    SGLang,
    encoded,
)

KEY = "sk-very-secret-0123456789"


class Web:
    """`behave(handler)` answers; counts connections, keeps headers."""

    def __init__(self) -> None:
        web = self
        self.connections = 0
        self.headers: list[Any] = []
        self.behave: Callable[[Any], None] = lambda handler: web.say(handler, {"ok": True})

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                web.connections += 1
                super().setup()

            def log_message(self, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                self.rfile.read(int(self.headers["content-length"] or 0))
                web.headers.append(self.headers)
                web.behave(self)

            do_POST = do_GET

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"

    @staticmethod
    def say(handler: Any, what: Any, code: int = 200) -> None:
        data = what if isinstance(what, bytes) else json.dumps(what).encode()
        handler.send_response(code)
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)


@pytest.fixture
def web() -> Iterator[Web]:
    made = Web()
    yield made
    made.http.shutdown()
    made.http.server_close()


def test_connections_are_kept(web: Web) -> None:
    client = Client(web.url, concurrency=4)
    for _ in range(5):
        assert client.ask(HttpCall("/x")) == {"ok": True}
    assert web.connections == 1
    assert client.ask_all([HttpCall("/x", {"n": n}) for n in range(40)]) == [{"ok": True}] * 40
    assert web.connections <= 5


def test_a_connection_that_was_closed_meanwhile_is_opened_again(web: Web) -> None:
    def once(handler: Any) -> None:
        Web.say(handler, {"ok": True})
        handler.close_connection = True  # without a word, as servers do when a connection was idle

    client = Client(web.url)
    web.behave = once
    for _ in range(3):
        assert client.ask(HttpCall("/x", {})) == {"ok": True}
        time.sleep(0.05)
    assert web.connections == 3


def test_each_failure_is_one_line_of_its_kind(web: Web) -> None:
    client = Client(web.url, timeout=0.5)
    for code, kind in ((404, AbsentError), (503, GoneError), (500, GoneError), (400, ServerError)):
        web.behave = lambda handler, code=code: Web.say(handler, {"error": {"message": "no\nway"}}, code)  # type: ignore[misc]
        with pytest.raises(kind, match=rf"http://127.0.0.1:\d+/x: HTTP {code}: no way") as error:
            client.ask(HttpCall("/x"))
        assert type(error.value) is kind
    web.behave = lambda handler: Web.say(handler, {"error": {"message": "broken"}}, 500)
    with pytest.raises(ServerError) as error:
        client.ask(HttpCall("/x", {}, job=True))
    assert type(error.value) is ServerError  # a folder that cannot be loaded will not be loaded later
    web.behave = lambda handler: Web.say(handler, b"<html>")
    with pytest.raises(ServerError, match="no JSON"):
        client.ask(HttpCall("/x"))
    web.behave = lambda handler: Web.say(handler, b"")
    assert client.ask(HttpCall("/x")) is None
    web.behave = lambda handler: time.sleep(3)
    with pytest.raises(ServerError, match=r"no whole answer within 0\.5 s"):
        client.ask(HttpCall("/x"))


def test_an_answer_that_drips_ends_in_time(web: Web) -> None:
    def drip(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("content-length", "1000")
        handler.end_headers()
        with contextlib.suppress(OSError):  # the client gives up
            for _ in range(60):
                handler.wfile.write(b" ")
                handler.wfile.flush()
                time.sleep(0.1)

    web.behave = drip
    began = time.monotonic()
    with pytest.raises(ServerError, match="no whole answer"):
        Client(web.url, timeout=0.5).ask(HttpCall("/x"))
    assert time.monotonic() - began < 3


def test_an_answer_without_end_is_cut_off(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "LARGEST", 1000)
    web.behave = lambda handler: Web.say(handler, b"x" * 2000)
    with pytest.raises(ServerError, match="says that it has 2000 bytes; 1000 are read at most"):
        Client(web.url).ask(HttpCall("/x"))


def test_nobody_there() -> None:
    with pytest.raises(GoneError, match=r"no server at http://127.0.0.1:1 \("):
        Client("http://127.0.0.1:1/v1").ask(HttpCall("/x"))


def test_a_key_is_sent_and_never_shown(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVED_KEY", KEY)
    web.behave = lambda handler: Web.say(handler, {"detail": f"bad key {KEY}"}, 401)
    with pytest.raises(ServerError, match=r"bad key \*\*\*") as error:
        Client(web.url, api_key_env="SERVED_KEY").ask(HttpCall("/x"))
    assert KEY not in str(error.value)
    assert web.headers[0]["authorization"] == f"Bearer {KEY}"


GOOD = {"model": "m", "choices": [{"token_ids": [5, 6], "logprobs": {"token_logprobs": [-1.0, -0.5]}}]}


def test_what_vllm_answers() -> None:
    read = VLLM().read(GOOD, ServedModel("m"))
    assert (read.ids.tolist(), read.logprobs.tolist(), read.version) == ([5, 6], [-1.0, -0.5], None)
    assert (read.ids.dtype, read.logprobs.dtype) == (np.int32, np.float32)


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"token_ids": None}, "no token_ids"),
        ({"token_ids": [5]}, "1 token ids and 2 log-probabilities"),
        ({"logprobs": None}, "2 token ids and 1 log-probabilities|no numbers"),
        ({"token_ids": [], "logprobs": {"token_logprobs": []}}, "0 token ids"),
        ({"token_ids": [5, -6]}, "impossible"),
        ({"token_ids": ["a", "b"]}, "no numbers"),
        ({"logprobs": {"token_logprobs": [-1.0, float("nan")]}}, "impossible"),
        ({"logprobs": {"token_logprobs": [-1.0, 0.5]}}, "impossible"),
    ],
)
def test_what_nothing_can_be_learned_from(choice: dict[str, Any], said: str) -> None:
    with pytest.raises(ServerError, match=said):
        VLLM().read({"model": "m", "choices": [GOOD["choices"][0] | choice]}, ServedModel("m"))  # type: ignore[operator, index]


def test_an_answer_of_another_model_or_of_none() -> None:
    with pytest.raises(ServerError, match="is of model 'm', not of 'solver-1'"):
        VLLM().read(GOOD, ServedModel("m", "solver-1"))
    for nonsense in (None, [], {"choices": []}, "text"):
        with pytest.raises(ServerError):
            VLLM().read(nonsense, ServedModel("m"))
        with pytest.raises(ServerError, match="no output_token_logprobs"):
            SGLang().read(nonsense, ServedModel("m"))


def test_what_sglang_is_asked_and_answers() -> None:
    call = SGLang().sample(ServedModel("m", "a"), np.array([5, 6]), seed=3, tokens=9, temperature=0.5, ends=[1])
    assert call.body is not None
    assert (call.path, call.body["input_ids"], call.body["lora_path"]) == ("/generate", [5, 6], "a")
    assert call.body["sampling_params"]["sampling_seed"] == 3
    assert "lora_path" not in (
        SGLang().sample(ServedModel("m"), np.array([5]), seed=3, tokens=9, temperature=1, ends=[]).body or {}
    )
    said = {"meta_info": {"output_token_logprobs": [[-1.0, 7, None], [-2.0, 8, "x"]], "weight_version": "3-ab"}}
    read = SGLang().read(said, ServedModel("m"))
    assert (read.ids.tolist(), read.logprobs.tolist(), read.version) == ([7, 8], [-1.0, -2.0], "3-ab")


def test_a_server_that_refuses_weights(web: Web, tmp_path: Any) -> None:
    web.behave = lambda handler: Web.say(handler, {"success": False, "message": "not\nthese"})
    with pytest.raises(ServerError, match="the server refused: not these"):
        SGLang().load(Client(web.url), tmp_path, "1-a")


def test_vllm_goes_on_when_it_could_not_load(web: Web, tmp_path: Any) -> None:
    paths = []

    def behave(handler: Any) -> None:
        paths.append(handler.path)
        Web.say(handler, {"error": {"message": "no such folder"}}, 500 if handler.path == "/collective_rpc" else 200)

    web.behave = behave
    with pytest.raises(ServerError, match="no such folder"):
        VLLM().load(Client(web.url), tmp_path, "1-a")
    assert paths == ["/pause?mode=wait", "/collective_rpc", "/resume"]


def test_a_server_that_does_not_tokenize(web: Web) -> None:
    web.behave = lambda handler: Web.say(handler, {}, 404)
    assert encoded(Client(web.url), "m", "x") is None
    web.behave = lambda handler: Web.say(handler, {"tokens": [1, 2]})
    assert encoded(Client(web.url), "m", "x") == [1, 2]


def test_a_redirect_is_refused_by_both_hosts(web: Web) -> None:
    def behave(handler: Any) -> None:
        handler.send_response(307)
        handler.send_header("location", "http://elsewhere.example/v1/completions")
        handler.send_header("content-length", "0")
        handler.end_headers()

    web.behave = behave
    host = web.url.removeprefix("http://").removesuffix("/v1")
    said = rf"{host} redirects \(HTTP 307\) to elsewhere.example; .* set url to 'http://elsewhere.example'"
    with pytest.raises(ServerError, match=said):
        Client(web.url).ask(HttpCall("/v1/completions", {}))
    assert len(web.headers) == 1
