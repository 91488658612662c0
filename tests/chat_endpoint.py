"""A chat endpoint on 127.0.0.1 over real HTTP, which behaves as a test says."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def completion(text: object = " 42\n", usage: object = True, **choice: object) -> bytes:
    """What a chat endpoint answers. usage: as it says it, True: the usual, False: nothing."""
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


def reply(handler: BaseHTTPRequestHandler, data: bytes = completion(), code: int = 200, **options: object) -> None:
    handler.send_response(code)
    handler.send_header("content-type", str(options.get("kind", "application/json")))
    handler.send_header("content-length", str(options.get("length", len(data))))
    for name, value in dict(options.get("headers", {})).items():  # type: ignore[call-overload]
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(data)


class ChatEndpoint:
    """A server whose `behave(handler, body)` is set by a test or a subclass; keeps what it was sent."""

    def __init__(self) -> None:
        endpoint = self
        self.bodies: list[dict] = []
        self.headers: list[str] = []
        self.times: list[float] = []
        self.now = self.most = 0
        self.lock = threading.Lock()

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

    def behave(self, handler: BaseHTTPRequestHandler, body: dict) -> None:
        reply(handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/v1"

    @property
    def prompts(self) -> list[str]:
        """The last message of each request."""
        return [body["messages"][-1]["content"] for body in self.bodies]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
