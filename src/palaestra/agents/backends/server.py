"""Servers that sample for a policy that learns here: a client, and answers that can be learned from.

A `Client` waits for hundreds of requests at the same time in a `LoopThread`, which the replicas of a policy share; what
vLLM and SGLang are asked is in `dialects`, and what becomes of an answer that is broken off in `answering`. Every
failure is one line.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np

from palaestra.agents.backends import endpoint
from palaestra.agents.backends.events import Events
from palaestra.agents.backends.wire import Response, Wire, refusal_text
from palaestra.errors import PolicyError


class ServerError(PolicyError):
    """Raised when a model server fails at a request or gives an unusable answer."""


class LateError(ServerError):
    """Raised when no whole answer came in time."""


class GoneError(ServerError):
    """Raised for no answer or a temporary server failure such as 5xx: a later attempt may succeed."""


class AbortedError(ServerError):
    """Raised when the server itself broke an answer off (finish_reason 'abort')."""


class AbsentError(ServerError):
    """Raised when the server lacks the named model, adapter or route (404)."""


Ends = Sequence[int]
LEAST = -100.0
"""Nats: a token of this log-probability is sampled less than once in 10⁴³ tokens."""


class HttpCall(NamedTuple):
    """Data of one HTTP request: path, JSON body (None: a GET), and `job`, whether retrying a failure is useless."""

    path: str
    body: dict[str, Any] | None = None
    job: bool = False


class SampledAnswer(NamedTuple):
    """Data of one answer sampled by a server: token ids, log-probabilities, weights' version, finish reason.

    Attributes:
        ids: Token ids, int32[A].
        logprobs: Log-probability of each, float32[A], in nats.
        version: Of the weights, if the server says it.
        finish: Why it ended, in the server's words ("stop", "length", "abort" …), if the server says it.
        versions: Number of the weights that said each token, int32[A], where they change while answers are written.
    """

    ids: np.ndarray
    logprobs: np.ndarray
    version: str | None = None
    finish: str | None = None
    versions: np.ndarray | None = None

    def check(self, *, tokens: int, ends: Ends, vocabulary: int, whole: bool = True) -> None:
        """Raise unless the answer fits its request: at most `tokens` ids, fewer only if the last is an end token.

        Args:
            tokens: Most that were asked for.
            ends: Ids of end tokens; none if exactly `tokens` were asked for.
            vocabulary: Number of token ids that the model here has.
            whole: False for the beginning of an answer, which may have fewer, or none.

        Raises:
            ServerError: names what the server did; such an answer is not sampled from the policy.
        """
        length = len(self.ids)
        if whole and self.finish not in (None, "stop", "length"):
            raise ServerError(f"the server ended the answer by finish_reason {self.finish[:40]!r}, not stop or length")
        if length > tokens:
            raise ServerError(f"the server sent {length} tokens where at most {tokens} were asked for")
        if not length:
            if whole:
                raise ServerError(f"the server sent no token (finish_reason {self.finish!r})")
            return
        if self.ids.max() >= vocabulary:
            raise ServerError(
                f"the server sampled id {self.ids.max()}, the model here has {vocabulary}: serve that one"
            )
        ended = np.isin(self.ids, list(ends))
        if ended[:-1].any():
            place = int(ended.argmax())
            raise ServerError(
                f"the server sent {length - place - 1} tokens after the end token {self.ids[place]}, at place {place}"
            )
        if whole and length < tokens and not ended[-1]:
            raise ServerError(
                f"the server stopped after {length} of {tokens} tokens without an end token (finish_reason"
                f" {self.finish!r}): raise its maximal length, and give it no stop words"
            )
        if self.logprobs.min() < LEAST:
            raise ServerError(
                f"the server says log-probability {self.logprobs.min():.5g} of a token that it sampled; below"
                f" {LEAST:g} none can have been sampled"
            )


ABORT = "abort"
"""Finish reason of an answer that its server broke off, of vLLM and of SGLang."""
BUSY = (408, 429, 503)
"""Statuses of servers, and of what stands before them, that have no room for a request now."""
ATTEMPTS, PAUSE, LONGEST_PAUSE = 5, 0.5, 30.0
"""How often one that is busy is asked; seconds before the second time, doubled each time; most that it may ask for."""
_JITTER = random.Random()
NOTHING = SampledAnswer(np.zeros(0, np.int32), np.zeros(0, np.float32))
"""An answer without tokens yet."""


class ServedModel(NamedTuple):
    """Data of a server's names: of its model, and of the adapter in use if any."""

    model: str
    adapter: str | None = None


class LoopThread:
    """Event loop in a thread of its own, started by the first work that it gets; usable again after `close`.

    The thread ends when nobody has this object any more. A process that is forked meanwhile has no such thread.

    most: requests that may be under way at a time. slots: a semaphore of so many, made with the loop.
    """

    def __init__(self, most: int = 256) -> None:
        self.most, self.slots = most, asyncio.Semaphore(most)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: weakref.finalize[Any, Any] | None = None
        self._opening = threading.Lock()
        self._process = os.getpid()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Result of a coroutine, waited for; who is interrupted leaves nothing under way. Raises whatever it raises.

        Raises:
            PolicyError: it was started in a process that this one was forked from.
        """
        if self._loop is not None and self._process != os.getpid():
            work.close()
            raise PolicyError(
                f"process {os.getpid()} was forked from one that asks servers, {self._process}, and cannot wait for "
                "answers in its thread: start processes by spawn or forkserver, or fork before anything is asked"
            )
        begun: Future[Any] | None = None
        try:
            with self._opening:
                if self._loop is None:
                    self._process = os.getpid()
                    self._loop, self.slots = asyncio.new_event_loop(), asyncio.Semaphore(self.most)
                    thread = threading.Thread(target=_turn, args=(self._loop,), daemon=True, name="served")
                    thread.start()
                    self._end = weakref.finalize(self, _end, self._loop, thread)
                begun = asyncio.run_coroutine_threadsafe(work, self._loop)
            return begun.result()
        finally:
            if begun is not None:
                begun.cancel()
            del begun  # which holds the error that holds this frame

    def close(self) -> None:
        """End the thread, and what is under way: whoever waits for it in another one gets a CancelledError."""
        with self._opening:
            if self._end is not None:
                self._end()
                self._loop = self._end = None


def _turn(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop until it is stopped, then cancel what is left in it."""

    async def cancel() -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for each in left:
            each.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await asyncio.sleep(0)  # by then their connections are closed

    loop.run_forever()
    loop.run_until_complete(cancel())
    loop.close()


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    if thread is not threading.current_thread():  # where the collector found it, which may be in the loop
        thread.join()


class Client:
    """Blocking HTTP client for JSON with one server.

    timeout: seconds for one answer, from sending to the last byte. api_key_env: NAME of the variable with the key; it
    is read for each call and cut out of every message. loop: where it waits; None: one of its own.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key_env: str | None = None,
        timeout: float = 120.0,
        loop: LoopThread | None = None,
    ) -> None:
        endpoint.check_address(url, "url")
        self.url = endpoint.address(url).rstrip("/").removesuffix("/v1")
        self.timeout, self.api_key_env = timeout, api_key_env
        self.loop = LoopThread() if loop is None else loop
        self._wires: dict[str, Wire] = {}

    def ask(self, call: HttpCall, *, timeout: float | None = None) -> Any:
        """JSON of the answer to one call; None if it has no body.

        Raises:
            GoneError: no connection; for what is no job also 5xx, or 408 or 429 however often it is asked.
            AbsentError: 404.
            ServerError: anything else, a redirect for example.
        """
        return self.loop.run(self.send(call, timeout))

    def close(self) -> None:
        """Close the connections; the loop goes on."""
        wires, self._wires = list(self._wires.values()), {}
        for wire in wires:
            self.loop.run(wire.close())

    async def send(
        self,
        call: HttpCall,
        timeout: float | None = None,
        heard: Callable[[Any], None] | None = None,
        most: int | None = None,
    ) -> Any:
        """As `ask`, within the loop.

        heard: called with the JSON of each event of a stream as it comes; None is then what is returned. most: bytes of
        such a stream.

        Raises:
            whatever `heard` raises.
        """
        timeout = timeout or self.timeout
        key = os.environ.get(self.api_key_env, "") if self.api_key_env else ""
        try:
            response = await self._patient(call, key, timeout, heard, most)
        except ServerError as error:  # in an event
            raise type(error)(endpoint.redacted(key, str(error))) from None
        except TimeoutError:
            raise LateError(f"no whole answer within {timeout:g} s") from None
        except OSError as error:
            raise GoneError(f"no server at {self.url} ({' '.join(str(error).split())})") from None
        except endpoint.UnusableAnswerError as error:
            raise ServerError(endpoint.redacted(key, str(error))) from None
        if 300 <= response.status < 400:
            path = call.path.partition("?")[0]
            why = endpoint.redirected(
                self.url, response.status, response.headers.get("location"), path=path, option="url"
            )
            raise ServerError(endpoint.redacted(key, str(why)))
        if response.status >= 400:
            message = f"{self.url}{call.path}: {endpoint.redacted(key, refusal_text(response)[:300])}"
            if response.status == 404:
                raise AbsentError(message)
            passes = response.status >= 500 or response.status in BUSY
            raise (GoneError if passes and not call.job else ServerError)(message)
        try:
            return json.loads(response.body) if response.body.strip() else None
        except ValueError:
            if call.job:  # vLLM says in plain words that an adapter is there
                return None
            raise ServerError(f"{self.url}{call.path} answered with {response.body[:40]!r}, no JSON") from None

    async def _patient(
        self, call: HttpCall, key: str, timeout: float, heard: Callable[[Any], None] | None, most: int | None
    ) -> Response:
        """As `_send`; who is too busy for a request is asked again after pauses, `timeout` seconds in all at most."""
        last = time.monotonic() + timeout
        for attempt in range(ATTEMPTS):
            response = await self._send(call, key, timeout, heard, most)
            asked = endpoint.retry_after(response.headers)
            pause = min(LONGEST_PAUSE, PAUSE * 2**attempt * _JITTER.uniform(0.5, 1) if asked is None else asked)
            waits = response.status in BUSY and call.body is not None and not call.job
            if not waits or attempt == ATTEMPTS - 1 or time.monotonic() + pause > last:
                break
            await asyncio.sleep(pause)
        return response

    async def _send(
        self, call: HttpCall, key: str, timeout: float, heard: Callable[[Any], None] | None, most: int | None
    ) -> Response:
        wire = self._wires.setdefault(key, Wire(self.url, key))
        body = b"" if call.body is None else json.dumps(call.body).encode()
        method, events = "GET" if call.body is None else "POST", Events()

        def listen(part: bytes) -> None:
            assert heard is not None
            for event in events.read(part):
                heard(event)

        listens = None if heard is None else listen
        try:
            return await wire.request(method, call.path, body, timeout, listens, most)
        except ConnectionResetError:  # a server closes connections that were idle: then a fresh one is worth a try
            if events.any:
                raise
            return await wire.request(method, call.path, body, timeout, listens, most)
