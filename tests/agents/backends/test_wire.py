"""The HTTP client that chat policies, judges and weight servers share; what they do with answers is in their tests."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

import pytest

from palaestra.agents.backends import wire
from palaestra.agents.backends.endpoint import ProxyAnswerError, UnusableAnswerError
from palaestra.agents.backends.wire import NotSentError, Response, StatusError, Wire, json_of, refusal_text


def exchange(
    answer: bytes, use: Callable[[Wire], asyncio.Future[Response] | object], suffix: str = "/v1", key: str = "key"
) -> tuple[list[bytes], object]:
    """Heads of the requests that a server saw which always answers so, and what `use` gave."""
    heads: list[bytes] = []

    async def scene() -> object:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while True:
                    heads.append(await reader.readuntil(b"\r\n\r\n"))
                    length = [line for line in heads[-1].split(b"\r\n") if line.startswith(b"content-length:")]
                    await reader.readexactly(int(length[0].split(b":")[1]))
                    writer.write(answer)
            except asyncio.IncompleteReadError:
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        client = Wire(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{suffix}", key)
        found = await use(client)  # type: ignore[misc]
        await client.close()
        server.close()
        return found

    return heads, asyncio.run(scene())


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


def test_method_path_query_and_key_are_sent_over_one_connection() -> None:
    async def use(client: Wire) -> Response:
        await client.get("/models", 5)
        await client.post("/a?b=1", b"xy", 5)
        return await client.post("/c", b"", 5)

    heads, found = exchange(OK, use, "/v1/?version=2")
    assert [head.split(b" HTTP")[0] for head in heads] == [
        b"GET /v1/models?version=2", b"POST /v1/a?b=1&version=2", b"POST /v1/c?version=2",
    ]  # fmt: skip
    assert all(b"authorization: Bearer key\r\n" in head for head in heads)
    assert found == Response(200, {"content-length": "2"}, b"{}")


def test_white_space_around_a_key_is_not_sent() -> None:
    async def use(client: Wire) -> Response:
        return await client.get("/models", 5)

    (head,), _ = exchange(OK, use, key="key\n")
    assert b"authorization: Bearer key\r\n" in head
    assert head.count(b"\n\r\n") == 1


def test_a_proxy_gets_its_credentials_and_nothing_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://me:it%40@proxy.example:3128")
    for host in ("localhost", "127.0.0.1", "127.1.2.3", "[::1]"):
        client = Wire(f"http://{host}:8000/v1")
        assert (client.proxy, "proxy-authorization" in client.headers) == (None, False)
    for url in ("http://gpu.example/v1", "http://127.example/v1"):
        client = Wire(url)
        assert client.proxy is not None
        assert "proxy-authorization: Basic bWU6aXRA\r\n" in client.headers


def test_an_answer_in_chunks_after_a_provisional_one() -> None:
    head = b"HTTP/1.1 103 hints\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    answer = head + b"1\r\n{\r\n1;x\r\n}\r\n0\r\n\r\n"
    assert exchange(answer, lambda client: client.get("/", 5))[1].body == b"{}"  # type: ignore[attr-defined]


def test_nobody_there_a_connection_that_broke_and_a_late_answer_are_told_apart() -> None:
    async def nobody() -> None:
        with pytest.raises(NotSentError, match="no connection"):
            await Wire("http://127.0.0.1:1").get("/", 5)

    async def broken() -> None:
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        client = Wire(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(ConnectionResetError, match="broke before the answer was whole"):
            await client.get("/", 5)
        server.close()

    async def late(client: Wire) -> None:
        with pytest.raises(TimeoutError):
            await client.request("GET", "/", b"", 0.1, lambda part: None)

    asyncio.run(nobody())
    asyncio.run(broken())
    exchange(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", late)
    exchange(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{", late)  # of no length


def test_certificates_are_read_once_and_servers_have_to_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ssl.SSLContext] = []
    default = ssl.create_default_context

    def counted() -> ssl.SSLContext:
        made.append(default())
        return made[-1]

    monkeypatch.setattr(ssl, "create_default_context", counted)
    wire._trusted.cache_clear()
    for _ in range(3):
        assert Wire("https://a.example").tls is made[0]
    wire._trusted.cache_clear()
    assert len(made) == 1
    assert made[0].verify_mode == ssl.CERT_REQUIRED
    assert made[0].check_hostname


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error": {"message": "a\\nb"}}', "HTTP 400: a b"), (b'{"message": "c"}', "HTTP 400: c"),
        (b'{"detail": [{"loc": 1}]}', 'HTTP 400: [{"loc": 1}]'), (b"{}", "HTTP 400"), (b"oops", "HTTP 400: oops"),
        (b"", "HTTP 400"), (b"[" * 10**5, "HTTP 400: " + "[" * 200),
    ],
)  # fmt: skip
def test_a_refusal_in_the_words_of_the_endpoint(body: bytes, said: str) -> None:
    response = Response(400, {"retry-after": "1"}, body)
    assert refusal_text(response) == said
    error = StatusError(response)
    assert (str(error), error.status, error.headers) == (said, 400, {"retry-after": "1"})


def test_a_page_is_no_answer_of_the_endpoint() -> None:
    for headers, body in (({"content-type": "text/HTML; charset=x"}, b"{}"), ({}, b"  <html>")):
        with pytest.raises(ProxyAnswerError, match="no chat completion came with status 200 but"):
            json_of(Response(200, headers, body))
    with pytest.raises(UnusableAnswerError, match="not JSON"):
        json_of(Response(200, {}, b"{"))
    assert json_of(Response(200, {"content-type": "text/plain"}, b"[1]")) == [1]


@pytest.mark.parametrize("framing", [b"transfer-encoding: chunked\r\n", b"connection: close\r\n"])
def test_a_stream_is_heard_as_it_comes_also_if_it_breaks(framing: bytes) -> None:
    """Events before a break are read; a whole stream leaves no body; one without an end is cut off."""
    chunked = b"chunked" in framing
    body = b"3\r\nabc\r\n" if chunked else b"abc"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n" + framing + b"\r\n"

    async def scene(answer: bytes, most: int | None = None) -> tuple[list[bytes], object]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head + answer)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        client, heard = Wire(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"), list[bytes]()
        try:
            found: object = await client.request("POST", "/x", b"", 5, heard.append, most)
        except (OSError, UnusableAnswerError) as error:
            found = error
        await client.close()
        server.close()
        return heard, found

    heard, found = asyncio.run(scene(body + (b"0\r\n\r\n" if chunked else b"")))
    assert b"".join(heard) == b"abc"
    assert isinstance(found, Response)
    assert found.body == b""
    if chunked:
        heard, found = asyncio.run(scene(body + b"5\r\nde"))
        assert heard == [b"abc"]
        assert isinstance(found, ConnectionResetError)
    heard, found = asyncio.run(scene(body * 10, most=5))
    assert isinstance(found, UnusableAnswerError)


def test_an_answer_that_is_no_stream_is_read_whole() -> None:
    heard: list[bytes] = []
    _, found = exchange(OK, lambda client: client.request("POST", "/x", b"", 5, heard.append))
    assert isinstance(found, Response)
    assert (found.body, heard) == (b"{}", [])
