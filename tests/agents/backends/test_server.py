"""The client of servers of weights: what is sent, what is refused, and in which words."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import threading
import time
import warnings
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
import pytest
from tests.agents.backends.web import Web

from palaestra.agents.backends import endpoint, server
from palaestra.agents.backends.dialects import VLLM
from palaestra.agents.backends.server import (
    AbsentError,
    Client,
    GoneError,
    HttpCall,
    LoopThread,
    SampledAnswer,
    ServedModel,
    ServerError,
)
from palaestra.errors import PolicyError

KEY = "sk-very-secret-0123456789"


def test_connections_are_kept(web: Web) -> None:
    client = Client(web.url)
    for _ in range(5):
        assert client.ask(HttpCall("/x")) == {"ok": True}
    assert web.connections == 1


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
    client = Client(web.url)
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
        Client(web.url, timeout=0.5).ask(HttpCall("/x"))


@pytest.mark.parametrize("code", [408, 429, 503])
def test_a_busy_server_is_asked_again_after_pauses(web: Web, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(server, "PAUSE", 0.001)
    busy = [3]

    def behave(handler: Any) -> None:
        busy[0] -= 1
        Web.say(handler, {"ok": busy[0] < 0}, code if busy[0] >= 0 else 200)

    web.behave = behave
    assert Client(web.url).ask(HttpCall("/x", {})) == {"ok": True}
    for call, times in ((HttpCall("/x", {}), server.ATTEMPTS), (HttpCall("/x"), 1), (HttpCall("/x", {}, job=True), 1)):
        busy[0] = 99
        with pytest.raises(ServerError, match=f"HTTP {code}") as error:
            Client(web.url).ask(call)
        assert (type(error.value) is GoneError, 99 - busy[0]) == (not call.job, times)


def test_a_busy_server_says_how_long(web: Web) -> None:
    def behave(handler: Any) -> None:
        handler.send_response(429)
        handler.send_header("retry-after", "9")
        handler.send_header("content-length", "0")
        handler.end_headers()

    web.behave = behave
    with pytest.raises(GoneError, match="HTTP 429"):  # that is more than it has
        Client(web.url, timeout=5).ask(HttpCall("/x", {}))
    assert len(web.headers) == 1


def test_an_address_may_end_with_a_slash() -> None:
    assert {Client(f"http://a:1{end}").url for end in ("", "/", "/v1", "/v1/")} == {"http://a:1"}


def test_an_answer_that_drips_ends_in_time(web: Web) -> None:
    def drip(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("content-length", "1000")
        handler.end_headers()
        with contextlib.suppress(OSError):  # the client gives up
            for _ in range(300):
                handler.wfile.write(b" ")
                handler.wfile.flush()
                time.sleep(0.1)

    web.behave = drip
    began = time.monotonic()
    with pytest.raises(ServerError, match="no whole answer"):
        Client(web.url, timeout=0.5).ask(HttpCall("/x"))
    assert time.monotonic() - began < 20  # it drips for 30 s


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

    def stream(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.end_headers()
        handler.wfile.write(f'data: {{"error": {{"message": "bad key {KEY}", "code": 401}}}}\n\n'.encode())
        handler.close_connection = True

    web.behave = stream
    client = Client(web.url, api_key_env="SERVED_KEY")
    with pytest.raises(ServerError, match=r"broke off: bad key \*\*\*"):
        client.loop.run(client.send(HttpCall("/x", {}), heard=lambda event: VLLM().part(event, ServedModel("m"))))


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


@pytest.mark.parametrize(
    ("ids", "least", "fits"),
    [
        ([1, 9], -100.0, True),  # as many tokens, as large an id and as unlikely a token as there may be
        ([9], -100.0, True),
        ([1, 9], -100.01, False),
        ([1, 10], -1.0, False),
        ([1, 2], -1.0, True),  # cut off by the number of tokens
        ([1], -1.0, False),
        ([9, 1], -1.0, False),
        ([], -1.0, False),
        ([1, 2, 9], -1.0, False),
    ],
)
def test_an_answer_may_reach_its_limits_and_not_pass_them(ids: list[int], least: float, fits: bool) -> None:
    logprobs = np.linspace(least, 0.0, len(ids), dtype=np.float32)
    answer = SampledAnswer(np.array(ids, np.int32), logprobs, finish="stop")
    with contextlib.nullcontext() if fits else pytest.raises(ServerError, match="the server s"):
        answer.check(tokens=2, ends=(9,), vocabulary=10)


class Waiting:
    """Work without end, and what became of it."""

    def __init__(self) -> None:
        self.begun, self.cancelled = threading.Event(), threading.Event()

    async def work(self, begin: Any = lambda: None) -> None:
        self.begun.set()
        begin()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


def test_who_waits_for_a_loop_that_is_closed_waits_no_longer() -> None:
    loop, waiting, told = LoopThread(), Waiting(), list[BaseException]()

    def wait() -> None:
        try:
            loop.run(waiting.work())
        except CancelledError as error:
            told.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    assert waiting.begun.wait(30)
    loop.close()
    thread.join(10)
    assert not thread.is_alive()
    assert len(told) == 1
    assert waiting.cancelled.is_set()
    assert loop.run(asyncio.sleep(0, "again")) == "again"
    loop.close()


def test_who_is_interrupted_leaves_nothing_under_way() -> None:
    loop, waiting, main = LoopThread(), Waiting(), threading.get_ident()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run(waiting.work(threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT)).start))
    finally:
        signal.signal(signal.SIGINT, before)
    assert waiting.cancelled.wait(60)
    loop.close()


def test_a_forked_child_does_not_wait_for_a_thread_that_it_lacks() -> None:
    loop, (told, tell) = LoopThread(), multiprocessing.Pipe(duplex=False)

    def ask() -> None:
        try:
            tell.send(loop.run(asyncio.sleep(0, "an answer")))
        except PolicyError as error:
            tell.send(str(error))

    assert loop.run(asyncio.sleep(0, 1)) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads in a process that forks
        child = multiprocessing.get_context("fork").Process(target=ask)
        child.start()
    try:
        assert told.poll(20), "it waits for ever"
        assert told.recv().startswith(f"process {child.pid} was forked from one that asks servers, {os.getpid()}")
    finally:
        child.kill()
        child.join()
    assert loop.run(asyncio.sleep(0, 2)) == 2
    loop.close()
