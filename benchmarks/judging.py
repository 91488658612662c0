"""Ten thousand verdicts from an endpoint with 20 ms latency and 10 % refusals, 64 at a time, killed twice on the way.

A local server in a process of its own counts what it was paid. The ideal is what a client that only writes and reads
gets from the same server with the same refusals, measured before and after; beside it 64 / 20 ms. Prints the share of
the ideal that `judges.Endpoint` reaches, with its ledger, and what the server was paid in a run that is killed twice.

    python benchmarks/judging.py [items]
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from palaestra.judges import Endpoint

SERVER = Path(__file__).parents[1] / "tests" / "judges" / "chat_server.py"
AT_ONCE, LATENCY, FAULTS = 64, 0.02, 0.1
TEXT = "The answer to be judged, of some hundred words. " * 40


def questions(items: int) -> list[tuple[str, int]]:
    """A prompt of two kilobytes for each."""
    return [(f"item={item}. {TEXT}", 0) for item in range(items)]


def endpoint(port: int, ledger: str | None) -> Endpoint:
    """64 at a time."""
    return Endpoint(
        "m", base_url=f"http://127.0.0.1:{port}/v1", api_key_env=None, concurrency=AT_ONCE, wait=0.02, longest_wait=0.1,
        retries=9, ledger=ledger,
    )  # fmt: skip


async def bare(port: int, items: int) -> float:
    """Seconds of a client that only writes and reads, and writes again what was refused."""
    asker = endpoint(port, None)
    bodies = [asker.body(prompt, vote) for prompt, vote in questions(items)]
    began = time.perf_counter()

    async def worker() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while bodies:
            body = bodies.pop()
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            said = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(said.split(b"content-length: ")[1].split(b"\r\n")[0]))
            if said[9:12] != b"200":
                bodies.append(body)
        writer.close()

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
    return time.perf_counter() - began


def counts(port: int) -> dict[str, Any]:
    """What the server has seen."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/counts") as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def served() -> tuple[subprocess.Popen[str], int]:
    """A fresh server and its port."""
    server = subprocess.Popen(
        [sys.executable, str(SERVER), str(LATENCY), str(FAULTS)], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    return server, int(server.stdout.readline())


def main(items: int) -> None:
    """Throughput, then the kills."""
    with tempfile.TemporaryDirectory() as folder:
        server, port = served()
        try:
            before = asyncio.run(bare(port, items))
            asker = endpoint(port, f"{folder}/calls.sqlite")
            asked, work, began = questions(items), time.process_time(), time.perf_counter()
            found = asker.ask(asked)
            ours, work = time.perf_counter() - began, time.process_time() - work
            after = asyncio.run(bare(port, items))
            assert all(reply.text is not None for reply in found)
            ideal = (before + after) / 2
            print(
                f"{items} items: ideal {items / ideal:.0f}/s (before {items / before:.0f}, after {items / after:.0f})"
            )
            print(f"ours {items / ours:.0f}/s = {ideal / ours:.0%} of the ideal; {work / items * 1e3:.2f} ms CPU each")
            print(f"latency alone allows {AT_ONCE / LATENCY * (1 - FAULTS):.0f}/s")
        finally:
            server.kill()
        server, port = served()
        try:
            command = [sys.executable, __file__, "child", str(port), f"{folder}/killed.sqlite", str(items)]
            for share in (0.3, 0.6):
                child = subprocess.Popen(command, env=os.environ, stdout=subprocess.DEVNULL)
                while len(counts(port)["paid"]) < share * items and child.poll() is None:
                    time.sleep(0.05)
                child.send_signal(signal.SIGKILL)
                child.wait()
            done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=True)
            paid = counts(port)["paid"]
            print(
                f"killed twice: {done.stdout.strip()}; paid for {len(paid)} items, most for one: {max(paid.values())}"
            )
        finally:
            server.kill()


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        replies = endpoint(int(sys.argv[2]), sys.argv[3]).ask(questions(int(sys.argv[4])))
        good = sum(reply.text is not None for reply in replies)
        print(f"{good} verdicts and {len(replies) - good} error rows of {len(replies)}")
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
