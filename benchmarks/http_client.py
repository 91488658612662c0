"""CPU per request of the HTTP client that chat policies, judges and weight servers share, beside httpx and `openai`.

Chat completions of fifty words from an endpoint on this machine that takes 20 ms for each, 32 at a time; the endpoint
runs in a process of its own and does not count. Medians of several rounds, all in one run.

Run: python benchmarks/http_client.py
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from statistics import median
from time import process_time
from typing import Any

from palaestra.agents.backends.wire import Wire, json_of

REQUESTS, AT_ONCE, ROUNDS = 600, 32, 5
LEAST = 5.0
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "word " * 100}], "max_tokens": 100}
SERVER = """
import sys
from palaestra.testing.endpoint import StubEndpoint
print(StubEndpoint(lambda body: "word " * 50, latency=0.02).url, flush=True)
sys.stdin.read()
"""
Ask = Callable[[], Awaitable[Any]]


@asynccontextmanager
async def ours(url: str) -> Any:
    """Client of this package."""
    wire = Wire(url, "key")

    async def ask() -> Any:
        return json_of(await wire.post("/chat/completions", json.dumps(BODY).encode(), 10))

    yield ask
    await wire.close()


@asynccontextmanager
async def with_httpx(url: str) -> Any:
    """Client of httpx."""
    import httpx

    async with httpx.AsyncClient(timeout=10) as client:

        async def ask() -> Any:
            return (await client.post(f"{url}/chat/completions", json=BODY)).json()

        yield ask


@asynccontextmanager
async def with_openai(url: str) -> Any:
    """Client of `openai`, which stands on httpx."""
    from openai import AsyncOpenAI

    async with AsyncOpenAI(api_key="key", base_url=url, timeout=10) as client:

        async def ask() -> Any:
            return await client.chat.completions.create(**BODY)

        yield ask


async def seconds(opened: AbstractAsyncContextManager[Ask]) -> float:
    """CPU seconds for one request, after as many as run at once have opened the connections."""
    slots = asyncio.Semaphore(AT_ONCE)
    async with opened as ask:

        async def one() -> None:
            async with slots:
                await ask()

        await asyncio.gather(*(one() for _ in range(AT_ONCE)))
        before = process_time()
        await asyncio.gather(*(one() for _ in range(REQUESTS)))
        return (process_time() - before) / REQUESTS


def main() -> int:
    """Print the table; 1 if a client of a library takes less than `LEAST` times as much."""
    kinds = {"wire": ours, "httpx": with_httpx, "openai": with_openai}
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdin=-1, stdout=-1, text=True)
    assert server.stdout is not None
    url = server.stdout.readline().strip()
    try:
        taken: dict[str, list[float]] = {name: [] for name in kinds}
        for _ in range(ROUNDS):
            for name, kind in kinds.items():
                taken[name].append(asyncio.run(seconds(kind(url))))
    finally:
        server.communicate()
    found = {name: median(values) for name, values in taken.items()}
    for name, value in found.items():
        print(f"{name:8} {value * 1e6:7.0f} µs a request   {value / found['wire']:5.1f}×")
    ratio = found["httpx"] / found["wire"]
    print(f"httpx takes {ratio:.0f} times as much (criterion: at least {LEAST:g})")
    return int(ratio < LEAST)


if __name__ == "__main__":
    sys.exit(main())
