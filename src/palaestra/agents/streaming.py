"""Answers that arrive one by one: requests of many episodes at one endpoint, none of which waits for another.

`Policy.act` answers a batch when its last answer is there. A policy that waits for somebody else may offer `stream`
instead; an episode then goes on as soon as its own answers are there.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from typing import Protocol

from palaestra.agents.policy import Decision, Request, error_text

Ask = Callable[[Request], Awaitable[Decision]]


class AnswerStream(Protocol):
    """Protocol of asynchronous answers of a policy: `ask(request, done)` later calls `done(decision)`."""

    def ask(self, request: Request, done: Callable[[Decision], None]) -> None:
        """Send a request; `done` is called with its decision, in any thread, exactly once unless closed before."""

    def close(self) -> None:
        """Give up the requests under way."""


class AsyncStream:
    """`AnswerStream` that runs requests as coroutines on an event loop in a thread of its own.

    Args:
        opened: asynchronous context of all requests (a client, a circuit breaker), entered at once; gives the coroutine
            function that answers a request.
        name: of the thread.

    Example:
        >>> @contextlib.asynccontextmanager
        ... async def opened():
        ...     async def answer(request):
        ...         return Decision("yes")
        ...     yield answer
        >>> stream, told = AsyncStream(opened), threading.Event()
        >>> stream.ask(None, lambda decision: told.set())
        >>> told.wait(5)
        True
        >>> stream.close()
    """

    def __init__(
        self, opened: Callable[[], contextlib.AbstractAsyncContextManager[Ask]], name: str = "palaestra-answers"
    ) -> None:
        self._opened = opened
        self._loop = asyncio.new_event_loop()
        self._answers: asyncio.Future[Ask] = self._loop.create_future()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def ask(self, request: Request, done: Callable[[Decision], None]) -> None:
        """Send a request; see `AnswerStream.ask`."""
        asyncio.run_coroutine_threadsafe(self._answer(request, done), self._loop)

    def close(self) -> None:
        """Give up the requests under way and end the thread; see `AnswerStream.close`."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _serve(self) -> None:
        try:
            async with self._opened() as answer:
                self._answers.set_result(answer)
                await self._end.wait()
                await _cancel_others()
        except Exception as error:
            if self._answers.done():  # of closing, when every answer is there
                return
            self._answers.set_exception(error)  # whoever asks is told
            await self._end.wait()
            await _cancel_others()

    async def _answer(self, request: Request, done: Callable[[Decision], None]) -> None:
        try:
            answer = await asyncio.shield(self._answers)
            decision = await answer(request)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # whatever happens, an episode waits for this
            decision = Decision("", error=error_text(error))
        done(decision)


async def _cancel_others() -> None:
    under_way = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in under_way:
        task.cancel()
    await asyncio.gather(*under_way, return_exceptions=True)
