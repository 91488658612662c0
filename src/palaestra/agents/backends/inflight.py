"""Other weights for a server in the middle of its answers (`train.inflight`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from palaestra.agents.backends.answering import label_of
from palaestra.agents.backends.weights import WeightServer
from palaestra.agents.lm import LMPolicy

DRAINED = 1.0
"""Seconds in which a server gives back the answers that it was told to break off."""


def change(server: WeightServer, lm: LMPolicy, digest: str, number: int | None, folder: Callable[[], Path]) -> None:
    """Break off what a server is answering, give it these weights, and let the answers go on.

    No request is sent meanwhile, and each that was sent has come back before weights are touched, whole or with what it
    had, so it is known which weights said a token. One that has not come back in a second is cut off: it was in a
    queue. The server reads prompts and beginnings again, so no token depends on keys and values of older weights.

    Args:
        server: That is asked by this process only.
        lm: Whose weights.
        digest: Of the weights.
        number: Of the weights, updates so far.
        folder: Writes them, if need be, and says where.

    Raises:
        PolicyError: it cannot take weights, or answers with other weights than it was given.
    """
    assert server.client is not None
    loop, done = server.client.loop, asyncio.Event()

    async def begin() -> None:  # in the loop, as all that reads them
        server.changing, server.changes = done, server.changes + 1

    async def drain() -> None:
        if server.sending:
            _, late = await asyncio.wait(set(server.sending), timeout=DRAINED)
            for each in late:
                each.cancel()
            if late:
                await asyncio.wait(late)

    async def go_on() -> None:
        server.changing = None
        done.set()

    loop.run(begin())
    try:
        server.settings.dialect.interrupt(server.client)
        loop.run(drain())
        server.give(lm, digest, label_of(number, digest), folder)
        server.number = number
    except BaseException:
        server.digest = None
        raise
    finally:
        loop.run(go_on())
