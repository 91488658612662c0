"""An endpoint in this process that sends any bytes, goes away and comes back."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

from tests.judges.chat_server import completion

from palaestra.judges import Endpoint

Respond = Callable[[str, int], bytes]


def http(status: int, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


YES = http(200, completion("VERDICT: yes"))


class Server:
    """Bytes for each (prompt, number of the request); b"" closes the connection. Counts what is under way."""

    def __init__(self) -> None:
        self.respond: Respond = lambda prompt, number: YES
        self.prompts: list[str] = []
        self.heads: list[str] = []
        self.delay, self.now, self.most, self.gone = 0.0, 0, 0, False
        started = threading.Event()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while True:
                    head = (await reader.readuntil(b"\r\n\r\n")).decode()
                    length = int(head.lower().split("content-length: ")[1].split("\r\n")[0])
                    prompt = json.loads(await reader.readexactly(length))["messages"][0]["content"]
                    self.heads.append(head)
                    self.prompts.append(prompt)
                    self.now += 1
                    self.most = max(self.most, self.now)
                    await asyncio.sleep(self.delay)
                    self.now -= 1
                    said = self.respond(prompt, len(self.prompts) - 1)
                    if not said or self.gone:
                        break
                    writer.write(said)
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                writer.close()

        async def main() -> None:
            self.handle = handle
            self.server = await asyncio.start_server(handle, "127.0.0.1", 0)
            self.port = self.server.sockets[0].getsockname()[1]
            self.stop = asyncio.Event()
            self.loop = asyncio.get_running_loop()
            started.set()
            await self.stop.wait()

        self.thread = threading.Thread(target=asyncio.run, args=(main(),), daemon=True)
        self.thread.start()
        started.wait()

    def away(self, seconds: float) -> None:
        """Close the port, so that no connection can be made for so long; negative: for ever."""

        self.gone = True

        async def leave() -> None:
            self.server.close()
            if seconds >= 0:
                await asyncio.sleep(seconds)
                self.server = await asyncio.start_server(self.handle, "127.0.0.1", self.port)
                self.gone = False

        asyncio.run_coroutine_threadsafe(leave(), self.loop)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def ask(self, **options: Any) -> Endpoint:
        known = {"base_url": self.url, "api_key_env": None, "wait": 0.001, "longest_wait": 0.01, "max_tokens": 10}
        return Endpoint("m", **{**known, **options})


def questions(number: int) -> list[tuple[str, int]]:
    return [(f"item={each}.", 0) for each in range(number)]
