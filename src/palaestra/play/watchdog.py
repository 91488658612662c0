"""Calls that may hang: a worker makes them one after the other while the caller watches the clock.

One handover per batch, not per call. A call that takes too long is left behind in its daemon thread, and a new thread
makes the calls that remain. Python cannot stop a thread, so the abandoned call keeps what it holds until it returns;
and a call that never releases the interpreter lock cannot be timed out. Left out: processes, which envs would have to
be pickled for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from time import perf_counter
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Failure:
    """What a call raised instead of returning; `hung` if it was abandoned."""

    error: BaseException
    hung: bool = False


class Watchdog:
    """Makes calls with a time limit of `timeout` seconds each; None: no limit and no thread. Close it after use."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._inbox: SimpleQueue[_Batch[Any, Any] | None] | None = None

    def map(self, call: Callable[[Item], Result], items: Sequence[Item]) -> list[Result | Failure]:
        """`call(item)` for every item, in order: what it returned, or the `Failure`."""
        if self._timeout is None:
            return [_attempt(call, item) for item in items]
        results: list[Result | Failure] = []
        while len(results) < len(items):
            batch = _Batch(call, items[len(results) :])
            if self._inbox is None:
                self._inbox = SimpleQueue()
                threading.Thread(target=_work, args=(self._inbox,), name="palaestra-envs", daemon=True).start()
            self._inbox.put(batch)
            if not batch.wait(self._timeout):
                self.close()
                batch.results.append(Failure(TimeoutError(f"no answer within {self._timeout:g} s"), hung=True))
            results += batch.results
        return results

    def close(self) -> None:
        """Let the worker end."""
        if self._inbox is not None:
            self._inbox.put(None)
            self._inbox = None


class _Batch(Generic[Item, Result]):
    def __init__(self, call: Callable[[Item], Result], items: Sequence[Item]) -> None:
        self.results: list[Result | Failure] = []
        self._call, self._items = call, items
        self._began = perf_counter()
        self._position = -1  # not begun
        self._abandoned = False
        self._lock = threading.Lock()
        self._done = threading.Event()

    def run(self) -> bool:
        """In the worker: make the calls; False if the batch was abandoned meanwhile."""
        for position, item in enumerate(self._items):
            # The position last: whoever sees it also sees the time that belongs to it.
            self._began = perf_counter()
            self._position = position
            result = _attempt(self._call, item)
            with self._lock:
                if self._abandoned:
                    return False
                self.results.append(result)
        self._done.set()
        return True

    def wait(self, timeout: float) -> bool:
        """In the caller: True when all is done; False when a call took too long, and the batch is then abandoned."""
        left = timeout
        while not self._done.wait(left):
            with self._lock:  # no call can end now
                left = timeout - (perf_counter() - self._began)
                running = len(self.results) == self._position < len(self._items)
                if running and left <= 0:
                    self._abandoned = True
                    return False
            left = max(left, 0.001)
        return True


def _work(inbox: SimpleQueue[_Batch[Any, Any] | None]) -> None:
    while (batch := inbox.get()) is not None:
        if not batch.run():
            return


def _attempt(call: Callable[[Item], Result], item: Item) -> Result | Failure:
    try:
        return call(item)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an env that calls sys.exit() must not end the run either
        return Failure(error)
