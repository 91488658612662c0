"""A server on 127.0.0.1 that answers as a test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


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
                self.body = self.rfile.read(int(self.headers["content-length"] or 0))
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
