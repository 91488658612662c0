"""An OpenAI-compatible endpoint on this machine whose answers come from somewhere else: a program's calls, intercepted.

A program that asks `OPENAI_BASE_URL` for chat completions runs unchanged; each of its requests waits here until
somebody answers it (`palaestra.teams.program`). Left out: embeddings, the responses API, several choices of a
request, log-probabilities, functions in the form before tools, answers that are held to a form or to a call (of
`tool_choice` only what may be called is heeded), images; and usage, which is 0, since tokens are the policy's.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from typing import Any

from palaestra.algebra.turns import clean
from palaestra.envs.tool_calls import parse
from palaestra.envs.tool_calls.formats import function_of

LONGEST = 32 * 2**20
"""Bytes of a request; more is refused."""


@dataclass(eq=False)
class Intercepted:
    """Chat request of an external program, held until `answer` or `refuse` is called.

    Attributes:
        body: What the program sent.
    """

    body: Mapping[str, Any]
    _answered: threading.Event = field(default_factory=threading.Event)
    _message: dict[str, Any] | None = None
    _problem: str = ""

    @property
    def model(self) -> str:
        """Name of the model that the program asks."""
        return str(self.body.get("model", ""))

    @property
    def messages(self) -> tuple[dict[str, Any], ...]:
        """Messages of the request as plain chat messages; parts are joined, role developer becomes system.

        Arguments of calls are objects, as chat templates take them; clients send them as text.
        """
        return tuple(_message(each) for each in self.body.get("messages") or ())

    @property
    def tools(self) -> tuple[Mapping[str, Any], ...]:
        """Schemas of the tools that may be called; `tool_choice` may name one, or say none."""
        given, choice = tuple(self.body.get("tools") or ()), self.body.get("tool_choice")
        if not isinstance(choice, Mapping):
            return () if choice == "none" else given
        named = function_of(choice).get("name")
        return tuple(tool for tool in given if named is None or function_of(tool).get("name") == named)

    def answer(self, text: str) -> None:
        """Send the answer; tool calls in it, in whatever form models write them, become those of the API."""
        found = parse(text, "auto", self.tools) if self.tools else None
        self._message = {"role": "assistant", "content": text}
        if found is not None and found.calls and found.error is None:
            self._message["content"] = found.text or None
            self._message["tool_calls"] = [
                {
                    "id": f"call_{number}_{time.monotonic_ns():x}",
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(dict(call.arguments), ensure_ascii=False)},
                }
                for number, call in enumerate(found.calls)
            ]
        self._answered.set()

    def refuse(self, problem: str) -> None:
        """Answer with an error after which no client tries again."""
        self._problem = problem
        self._answered.set()

    def wait(self, seconds: float) -> tuple[dict[str, Any] | None, str]:
        """Wait for the answer: (message, ""), or (None, why there is none)."""
        if not self._answered.wait(seconds):
            return None, f"nobody answered within {seconds:g} s"
        return self._message, self._problem


class Interceptor:
    """Local HTTP server with OpenAI's chat API: requests go into queue `arrived` as `Intercepted`, open `patience` s.

    Args:
        arrived: Gets every request, in the order in which they come.
        patience: Seconds that a request waits for its answer.

    Attributes:
        url: Its address, as `base_url` of a client.
        patience: See above; may be set anew.
        listens: Whether requests are taken; while it is False they are refused.
    """

    def __init__(self, arrived: SimpleQueue[Any], patience: float) -> None:
        self.patience, self.listens = patience, True
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.arrived, self._server.of, self._server.open = arrived, self, []
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def close(self) -> None:
        """Stop listening, and refuse what waits."""
        self.listens = False
        self._server.shutdown()
        for call in [*self._server.open]:
            call.refuse("nobody listens any more")
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """HTTP server of an `Interceptor`, `of`, with the calls that have no answer yet, `open`."""

    daemon_threads = True
    arrived: SimpleQueue[Any]
    of: Interceptor
    open: list[Intercepted]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print errors, but none of a connection that the program closed or that ended with it."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *args: object) -> None:
        """Nothing: a rollout has its own progress."""

    def do_GET(self) -> None:
        """The list of models, which some clients ask for first."""
        if self.path.partition("?")[0].endswith("/models"):
            self._send(200, {"object": "list", "data": []})
        else:
            self._fail(404, f"there is no {self.path} here, only chat/completions")

    def do_POST(self) -> None:
        """A chat request; blocks until it is answered."""
        size = int(self.headers.get("content-length") or 0)
        if not self.path.partition("?")[0].endswith("/chat/completions"):
            self.rfile.read(min(size, LONGEST))
            self._fail(404, f"there is no {self.path} here, only chat/completions")
            return
        try:
            body = json.loads(self.rfile.read(size)) if size <= LONGEST else None
        except ValueError:
            body = None
        if not isinstance(body, dict) or not isinstance(body.get("messages"), list) or not body["messages"]:
            self._fail(400, "a JSON object with messages was expected")
            return
        if body.get("n") not in (None, 1):
            self._fail(400, f"n={body['n']}: one choice a request can be had here")
            return
        for name in ("logprobs", "functions"):
            if body.get(name):
                self._fail(400, f"{name}: {'not told here' if name == 'logprobs' else 'give them as tools'}")
                return
        form = body.get("response_format")
        if form is not None and not (isinstance(form, dict) and form.get("type") == "text"):
            self._fail(400, "response_format: answers are held to no form here; say it in the prompt, or by tools")
            return
        if (kind := _unread(body["messages"])) is not None:
            self._fail(400, f"a message has a part of type {kind!r}: only text is read here")
            return
        if not self.server.of.listens:
            self._fail(400, "the question is answered, and the next one has not been asked")
            return
        call = Intercepted(body)
        self.server.open.append(call)
        self.server.arrived.put(call)
        message, problem = call.wait(self.server.of.patience)
        self.server.open.remove(call)
        if message is None:
            self._fail(400, problem)
        elif body.get("stream"):
            self._stream(call, message)
        else:
            self._send(200, _completion(call, message))

    def _send(self, code: int, value: Mapping[str, Any]) -> None:
        data = _json(value)
        self.send_response(code)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _fail(self, code: int, why: str) -> None:
        self._send(code, {"error": {"message": why, "type": "palaestra", "code": None, "param": None}})

    def _stream(self, call: Intercepted, message: dict[str, Any]) -> None:
        """The whole answer as one event: a client that asked for a stream reads it as one."""
        whole = _completion(call, message)
        choice = whole["choices"][0]
        delta = dict(choice["message"])
        if "tool_calls" in delta:
            delta["tool_calls"] = [{"index": place, **each} for place, each in enumerate(delta["tool_calls"])]
        first = {"index": 0, "delta": delta, "finish_reason": None}
        last = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for each in (first, last):
            event = {**whole, "object": "chat.completion.chunk", "choices": [each]}
            event.pop("usage")
            self.wfile.write(b"data: " + _json(event) + b"\n\n")
        if (call.body.get("stream_options") or {}).get("include_usage"):
            event = {**whole, "object": "chat.completion.chunk", "choices": []}
            self.wfile.write(b"data: " + _json(event) + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True


def _json(value: Mapping[str, Any]) -> bytes:
    return clean(json.dumps(value, ensure_ascii=False)).encode()


def _completion(call: Intercepted, message: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{time.monotonic_ns():x}", "object": "chat.completion", "created": int(time.time()),
        "model": call.model,
        "choices": [{"index": 0, "message": dict(message), "logprobs": None,
                     "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }  # fmt: skip


_WORDS = ("text", "refusal")
"""Fields of a message part that hold text."""


def _unread(messages: Sequence[Any]) -> str | None:
    """Type of the first part of a message that is no text."""
    contents = [each.get("content") for each in messages if isinstance(each, dict)]
    parts = [part for found in contents if isinstance(found, list) for part in found if isinstance(part, dict)]
    kinds = (part.get("type") for part in parts if part.keys().isdisjoint(_WORDS))
    return next(map(str, kinds), None)


def _message(given: Mapping[str, Any]) -> dict[str, Any]:
    content = given.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str):
        parts = [part for part in content if isinstance(part, Mapping)]
        content = "".join(str(part.get(word) or "") for part in parts for word in _WORDS)
    role = "system" if given.get("role") == "developer" else str(given.get("role", "user"))
    message: dict[str, Any] = {"role": role, "content": content or ""}
    for name in ("tool_calls", "tool_call_id", "name"):
        if given.get(name):
            message[name] = given[name]
    if isinstance(calls := message.get("tool_calls"), list):
        message["tool_calls"] = [_parsed(call) for call in calls]
    return message


def _parsed(call: Any) -> Any:
    """A call of the history with its arguments as an object, if they are the text of one."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"] or "{}")
    except (ValueError, RecursionError):
        return call
    return {**call, "function": {**function, "arguments": arguments}} if isinstance(arguments, dict) else call
