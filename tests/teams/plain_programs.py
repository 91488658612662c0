"""Programs for `palaestra.teams.program` that ask over HTTP with the standard library alone."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
import urllib.request
from typing import Any


def ask(system: str, user: str, **options: Any) -> str:
    body = {"model": "m", "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}]}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body | options).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(json.loads(answer.read())["choices"][0]["message"]["content"])


def chain(question: str) -> str:
    print("this is not the answer")
    plan = ask("You are the planner.", question)
    return ask("You are the writer.", f"{question} {plan}")


async def later(question: str) -> dict[str, str]:
    return {"answer": ask("You are the planner.", question)}


LOOPS: list[asyncio.AbstractEventLoop] = []
"""Of a client that keeps its connections, which belong to the loop in which they were made."""


async def keeps_a_client(question: str) -> str:
    LOOPS.append(asyncio.get_running_loop())
    if LOOPS[0] is not LOOPS[-1]:
        raise RuntimeError("Event loop is closed")
    LOOPS[0].create_task(never_done())
    return ask("You are the planner.", question)


async def never_done() -> None:
    await asyncio.sleep(3600)


def writes_its_memory_later(question: str) -> str:
    found = ask("You are the planner.", question)
    threading.Timer(0.3, ask, ("You are the planner.", f"remember {question}")).start()
    return found


def together(question: str) -> str:
    found: dict[str, str] = {}

    def one(name: str) -> None:
        found[name] = ask(f"You are the {name}.", question)

    threads = [threading.Thread(target=one, args=(name,)) for name in ("planner", "writer")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return " ".join(found[name] for name in sorted(found))


def alone(question: str) -> str:
    return "7"


def broken(question: str) -> str:
    ask("You are the planner.", question)
    print("the last words")
    raise ValueError("no such file")


def stuck(question: str) -> str:
    time.sleep(60)
    return ""


def many(question: str) -> str:
    return ask("You are the planner.", question, n=2)


def strange(question: str) -> str:
    return ask("You are the accountant.", question)
