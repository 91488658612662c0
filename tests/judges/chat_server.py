"""A chat endpoint in a process of its own on 127.0.0.1: late, at times faulty, and it counts what it was paid for.

Run as a program: `chat_server.py LATENCY FAULTS`; it prints its port. `GET /counts` says how often each question was
answered with 200 and how many refusals and requests there were; a question's number is what follows "item=" in it.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
from collections import Counter

PAID: Counter[str] = Counter()
SEEN: Counter[str] = Counter()


def completion(text: str) -> bytes:
    """What a chat endpoint answers."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    whole = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    return json.dumps(whole).encode()


async def serve(latency: float, faults: float) -> None:
    """For ever."""
    luck, answer = random.Random(0), completion("Fine.\nVERDICT: yes")

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"GET /counts"):
                    body, status = json.dumps({"paid": PAID, **SEEN}).encode(), b"200 OK"
                else:
                    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                    number = re.findall(rb"item=(\d+)", await reader.readexactly(length))[0].decode()
                    SEEN["requests"] += 1
                    await asyncio.sleep(latency)
                    if luck.random() < faults:
                        SEEN["refused"] += 1
                        body, status = b'{"error": {"message": "overloaded"}}', b"503 Unavailable"
                    else:
                        PAID[number] += 1
                        body, status = answer, b"200 OK"
                writer.write(b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1]), float(sys.argv[2])))
