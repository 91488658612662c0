"""HTTP/1.1 client of one address, for chat policies, judges and servers of weights alike.

It takes a twentieth of the CPU per request that httpx takes (`benchmarks/http_client.py`), which keeps one core ahead
of a fast endpoint. It tells what decides whether a request may be sent again: was there an answer, a refusal, or
nothing that one could know. Left out: HTTP/2, redirects, compression (a gzip that comes unasked is unpacked), cookies.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import ssl
import urllib.request
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from palaestra.agents.backends import endpoint
from palaestra.agents.backends.endpoint import ProxyAnswerError, UnusableAnswerError
from palaestra.errors import PolicyError

_HEAD = 2**16
Heard = Callable[[bytes], None]
"""Called with each part of an event stream, as it comes."""


class NotSentError(ConnectionError):
    """Raised when no connection could be made, so that the endpoint did not get the request."""


@dataclass(frozen=True)
class Response:
    """Data of an HTTP response: status, headers by lower-case name, body as bytes."""

    status: int
    headers: dict[str, str]
    body: bytes


class StatusError(PolicyError):
    """Raised when an endpoint answers a request with an HTTP error; it has `status`, `headers` and the message.

    Attributes:
        status: HTTP status, 400 or above.
        headers: By lower-case name.
    """

    def __init__(self, response: Response) -> None:
        super().__init__(refusal_text(response))
        self.status, self.headers = response.status, response.headers


def refusal_text(response: Response) -> str:
    """HTTP status and error message of a refused `Response`, as text on one line.

    >>> refusal_text(Response(429, {}, b'{"error": {"message": "too many"}}')), refusal_text(Response(500, {}, b""))
    ('HTTP 429: too many', 'HTTP 500')
    """
    try:
        found = json.loads(response.body)
        for name in ("error", "message", "detail"):
            found = found.get(name, found) if isinstance(found, dict) else found
        text = found if isinstance(found, str) else json.dumps(found) if found else ""
    except (ValueError, RecursionError):
        text = response.body[:200].decode(errors="replace")
    return f"HTTP {response.status}: {' '.join(text[:2000].split())}".rstrip(": ")


def json_of(response: Response) -> Any:
    """Parsed JSON body of a `Response`; raises ProxyAnswerError for a web page, UnusableAnswerError for no JSON.

    Raises:
        ProxyAnswerError: it is a page.
        UnusableAnswerError: it is no JSON.
    """
    kind = response.headers.get("content-type", "").split(";")[0]
    if "html" in kind.lower() or response.body.lstrip()[:1] == b"<":
        shown = response.body[:80].decode(errors="replace")
        raise ProxyAnswerError(
            f"no chat completion came with status {response.status} but {kind or 'a page'}: {shown!r}"
        )
    try:
        return json.loads(response.body)
    except (ValueError, RecursionError) as error:
        raise UnusableAnswerError(f"the answer is no chat completion (not JSON: {error})") from None


@cache
def _trusted() -> ssl.SSLContext:
    """Certificates of the system, which take 30 ms to be read."""
    return ssl.create_default_context()


class Wire:
    """Asynchronous HTTP client of one base address, through the proxy that the environment names (HTTPS_PROXY …).

    This machine itself is asked without it. key: sent as a bearer token, without white space around it; "" sends none.
    It belongs to one event loop.
    """

    def __init__(self, base_url: str, key: str = "") -> None:
        parts = urlsplit(base_url)
        self.tls = _trusted() if parts.scheme == "https" else None
        self.host, self.port = parts.hostname or "", parts.port or (443 if self.tls else 80)
        self.path, self.query = parts.path.rstrip("/"), parts.query
        proxy = urllib.request.getproxies().get(parts.scheme)
        here = self.host in ("localhost", "::1") or re.fullmatch(r"127(\.\d+){3}", self.host)
        bypassed = not proxy or bool(here) or bool(urllib.request.proxy_bypass(self.host))
        self.proxy = None if bypassed else urlsplit(str(proxy) if "://" in str(proxy) else f"http://{proxy}")
        name = f"[{self.host}]" if ":" in self.host else self.host
        self.where = name if parts.port is None else f"{name}:{parts.port}"
        self.headers = f"host: {self.where}\r\ncontent-type: application/json\r\naccept: application/json\r\n"
        self.headers += "accept-encoding: identity\r\n"
        self.headers += f"authorization: Bearer {key.strip()}\r\n" if key.strip() else ""
        self._signed = _signed(self.proxy) if self.proxy else ""
        self.headers += "" if self.tls else self._signed
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def get(self, path: str, timeout: float) -> Response:
        """Response to a GET request; see `request`."""
        return await self.request("GET", path, b"", timeout)

    async def post(self, path: str, body: bytes, timeout: float) -> Response:
        """Response to a POST request; see `request`."""
        return await self.request("POST", path, body, timeout)

    async def request(
        self, method: str, path: str, body: bytes, timeout: float, heard: Heard | None = None, most: int | None = None
    ) -> Response:
        """Send a request and read the whole response, within `timeout` seconds each for the connection and the rest.

        heard: called with the parts of an event stream (server-sent events) as they come, also of one that breaks
        later; the response then has no body. most: bytes of such a stream; default: 8 MiB.

        Raises:
            whatever `heard` raises.
            NotSentError: no connection could be made.
            TimeoutError: it was made, but there was no whole answer in time.
            OSError: it broke before the answer was whole: the request may have been seen.
            UnusableAnswerError: what came is no HTTP, or longer than 8 MiB.
            ProxyAnswerError: it is packed in a way that nobody asked for, and that cannot be unpacked.
        """
        reader, writer = await self._connection(timeout)
        target = f"{self.path}{path}"
        if self.query:
            target += f"{'&' if '?' in path else '?'}{self.query}"
        if self.proxy and not self.tls:
            target = f"http://{self.where}{target}"
        head = f"{method} {target} HTTP/1.1\r\n{self.headers}content-length: {len(body)}\r\n\r\n"
        kept = late = False

        def end() -> None:
            nonlocal late
            late = True
            writer.transport.abort()

        watch = asyncio.get_running_loop().call_later(timeout, end)  # a third of what asyncio.timeout costs
        try:
            writer.write(head.encode("latin-1") + body)
            response, kept = await _read(reader, heard, most or endpoint.LARGEST)
            if late:  # a stream of no said length looks whole when it is cut off
                raise TimeoutError
            response = _unpacked(response)
        except (asyncio.IncompleteReadError, OSError):
            if late:
                raise TimeoutError from None
            raise ConnectionResetError("the connection broke before the answer was whole") from None
        except (asyncio.LimitOverrunError, ValueError) as error:
            raise UnusableAnswerError(f"the answer is no HTTP: {error}") from None
        finally:
            watch.cancel()
            if kept:
                self._idle.append((reader, writer))
            else:
                writer.close()
        return response

    async def _connection(self, timeout: float) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        try:
            async with asyncio.timeout(timeout):
                return await self._open()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise NotSentError(f"no connection: {error or 'not in time'}") from error

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.proxy is None:
            return await asyncio.open_connection(self.host, self.port, ssl=self.tls, limit=_HEAD)
        reader, writer = await asyncio.open_connection(self.proxy.hostname, self.proxy.port or 80, limit=_HEAD)
        if self.tls:
            said = f"host: {self.where}\r\n{self._signed}\r\n"
            writer.write(f"CONNECT {self.host}:{self.port} HTTP/1.1\r\n{said}".encode())
            if b" 200" not in (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0]:
                raise NotSentError("the proxy refused the connection")
            await writer.start_tls(self.tls, server_hostname=self.host)
        return reader, writer

    async def close(self) -> None:
        """Close idle connections."""
        for _, writer in self._idle:
            writer.close()
        for _, writer in self._idle:
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                await asyncio.wait_for(writer.wait_closed(), 1)
        self._idle.clear()


def _signed(proxy: SplitResult) -> str:
    """Header with the credentials in a proxy's address; "" without any."""
    user = f"{unquote(proxy.username or '')}:{unquote(proxy.password or '')}".encode()
    return f"proxy-authorization: Basic {base64.b64encode(user).decode()}\r\n" if user != b":" else ""


async def _read(reader: asyncio.StreamReader, heard: Heard | None, most: int) -> tuple[Response, bool]:
    """The next answer, and whether the connection stays open after it."""
    status, headers = 100, {}
    while 100 <= status < 200:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        protocol, _, rest = lines[0].partition(" ")
        if not protocol.startswith("HTTP/1."):
            raise ValueError("it begins otherwise")
        status = int(rest[:3])
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines[1:] if line)
        }
    kept = headers.get("connection", "").lower() != "close" and protocol == "HTTP/1.1"
    if status >= 300 or not headers.get("content-type", "").lower().startswith("text/event-stream"):
        heard = None
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return Response(status, headers, await _chunks(reader, heard, most if heard else endpoint.LARGEST)), kept
    if (length := headers.get("content-length")) is not None:
        if not length.isdecimal() or int(length) > endpoint.LARGEST:
            raise UnusableAnswerError(
                f"the answer says that it has {length[:20]} bytes; {endpoint.LARGEST} are read at most"
            )
        return Response(status, headers, await reader.readexactly(int(length))), kept
    if status in (204, 304):
        return Response(status, headers, b""), kept
    if heard is not None:
        while part := await reader.read(_HEAD):
            heard(part)
            if (most := most - len(part)) < 0:
                raise UnusableAnswerError("the stream is longer than its tokens need")
        return Response(status, headers, b""), False
    body = await reader.read(endpoint.LARGEST + 1)
    while body and (more := await reader.read(endpoint.LARGEST + 1 - len(body))):
        body += more
    if len(body) > endpoint.LARGEST:
        raise UnusableAnswerError(f"the answer is longer than {endpoint.LARGEST / 2**20:g} MiB")
    return Response(status, headers, body), False


def _unpacked(response: Response) -> Response:
    """The response without gzip: some proxies pack although nobody asked for it.

    Raises:
        UnusableAnswerError: it cannot be unpacked, or is too long.
    """
    if (coding := response.headers.get("content-encoding", "").lower()) in ("", "identity"):
        return response
    try:
        unpacking = zlib.decompressobj(47)  # gzip or zlib
        body = unpacking.decompress(response.body, endpoint.LARGEST + 1)
    except zlib.error:
        raise ProxyAnswerError(f"the answer has content-encoding {coding[:20]!r}, which nobody asked for") from None
    if len(body) > endpoint.LARGEST:
        raise UnusableAnswerError(f"the answer is longer than {endpoint.LARGEST / 2**20:g} MiB")
    return Response(response.status, response.headers, body)


async def _chunks(reader: asyncio.StreamReader, heard: Heard | None, most: int) -> bytes:
    body, read = bytearray(), 0
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        read += size
        if size < 0 or read > most:
            raise UnusableAnswerError(f"the answer is longer than {most / 2**20:g} MiB")
        part = await reader.readexactly(size)
        if heard is None:
            body += part
        else:
            heard(part)
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass
    return bytes(body)
