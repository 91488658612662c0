"""A chat endpoint without a model, on 127.0.0.1, that answers after a given time, fails as told, and counts.

What a team of chat policies sends, what it costs and what it does about faults can be seen with it, without a model.
Left out: tokens, streaming, and everything but `POST …/chat/completions` and `GET …/models`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import numpy as np

Answer = Callable[[dict[str, Any]], str | Mapping[str, Any]]
"""From the body of a request to a text, or to the message of the assistant."""
FAULTS = ("500", "429", "drop")


class StubEndpoint:
    """Local HTTP test server with OpenAI's chat API that answers each request with `answer(body)`.

    Args:
        answer: Says what is answered: a text, or a message with `tool_calls`.
        latency: Seconds that an answer takes.
        faults: Share of requests that fail, after the same time: HTTP 500, HTTP 429, or a connection that breaks, in
            equal parts. None of them is paid for.
        seed: Of the faults.
        model: Name in the list of models.

    Attributes:
        url: Address, as `base_url` of a policy.
        bodies: Of all requests for an answer, in order of arrival.
        paid: Bodies of those that were answered, in order.
        faulty: How many were answered by a fault.

    Example:
        >>> import urllib.request
        >>> with StubEndpoint(lambda body: body["messages"][-1]["content"].upper()) as endpoint:
        ...     body = json.dumps({"messages": [{"role": "user", "content": "hi"}]}).encode()
        ...     request = urllib.request.Request(endpoint.url + "/chat/completions", body)
        ...     print(json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"])
        HI
    """

    def __init__(
        self, answer: Answer, *, latency: float = 0.0, faults: float = 0.0, seed: int = 0, model: str = "stub"
    ) -> None:
        self.answer, self.latency, self.faults, self.model = answer, latency, faults, model
        self.bodies: list[dict[str, Any]] = []
        self.paid: list[dict[str, Any]] = []
        self.faulty = 0
        self._rng = np.random.default_rng(seed)
        self._loop = asyncio.new_event_loop()
        self._killed = asyncio.Event()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        ready.wait()

    def __enter__(self) -> StubEndpoint:
        """Itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close it."""
        self.kill()

    def kill(self) -> None:
        """Stop abruptly: running requests see their connections break, later ones find no server."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._killed.set)
            self._thread.join()

    def _run(self, ready: threading.Event) -> None:
        try:
            self._loop.run_until_complete(self._live(ready))
        finally:
            self._loop.close()

    async def _live(self, ready: threading.Event) -> None:
        """Serve until it is killed; what was answered by then is still delivered, for it was paid."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        ready.set()
        await self._killed.wait()
        server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while line := await reader.readline():
                length = 0
                while (header := (await reader.readline()).strip().lower()) != b"":
                    if header.startswith(b"content-length:"):
                        length = int(header.split(b":")[1])
                said = await self._answered(line.split()[0], await reader.readexactly(length))
                if said is None:
                    break
                status, found = said
                data = json.dumps(found).encode()
                head = f"HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
                writer.write(head.encode() + data)
                await writer.drain()
        writer.close()
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await writer.wait_closed()

    async def _answered(self, method: bytes, text: bytes) -> tuple[int, dict[str, Any]] | None:
        """Status and body; None: the connection breaks."""
        if method == b"GET":
            return 200, {"object": "list", "data": [{"id": self.model, "object": "model"}]}
        body = json.loads(text)
        self.bodies.append(body)
        fails, which = self._rng.random() < self.faults, FAULTS[int(self._rng.integers(len(FAULTS)))]
        await asyncio.sleep(self.latency)
        if fails:
            self.faulty += 1
            return None if which == "drop" else (int(which), {"error": {"message": "a fault of the stub"}})
        self.paid.append(body)
        return 200, self._completion(body)

    def _completion(self, body: Mapping[str, Any]) -> dict[str, Any]:
        said = self.answer(dict(body))
        message = {"role": "assistant", "content": said} if isinstance(said, str) else {"role": "assistant", **said}
        read = sum(len(str(each.get("content") or "").split()) for each in body.get("messages", ()))
        wrote = len(str(message.get("content") or "").split())
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        return {
            "id": "stub",
            "object": "chat.completion",
            "created": 0,
            "model": self.model,
            "choices": [{"index": 0, "finish_reason": finish, "message": message}],
            "usage": {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote},
        }
