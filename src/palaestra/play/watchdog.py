"""Calls that may hang, or wait: threads make them while the caller watches the clock.

One handover per batch and thread, not per call. A call that takes too long is left behind in its daemon thread, and a
new thread makes the calls that remain. Python cannot stop a thread, so the abandoned call keeps what it holds until it
returns; and a call that never releases the interpreter lock cannot be timed out. Left out: processes, which envs would
have to be pickled for.
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
    """Makes calls, each with a time limit of `timeout` seconds (None: no limit). Close it after use.

    threads: how many calls are made at once; what has the same place (modulo `threads`) is called in the same thread,
    one after the other, for some things may be used in one thread only. 0: the caller's own thread, without a limit.
    Default: 1 if there is a limit, else 0.
    """

    def __init__(self, timeout: float | None, threads: int | None = None) -> None:
        self._timeout = timeout
        self._threads = (0 if timeout is None else 1) if threads is None else threads
        self._inboxes: dict[int, SimpleQueue[_Batch[Any, Any] | None]] = {}
        self._workers: dict[int, threading.Thread] = {}

    def map(
        self,
        call: Callable[[Item], Result],
        items: Sequence[Item],
        places: Sequence[int] | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> list[Result | Failure]:
        """`call(item)` for every item, in order: what it returned, or the `Failure`.

        places: one for each item; default: all the same. meanwhile: is called here while the others are under way.

        Raises:
            KeyboardInterrupt: a call raised it.
        """
        if self._threads == 0:
            if meanwhile:
                meanwhile()
            return [_raised(_attempt(call, item)) for item in items]
        if places is None or self._threads == 1:
            left = {0: list(range(len(items)))} if items else {}
        else:
            left = {}
            for index, place in enumerate(places):
                left.setdefault(place % self._threads, []).append(index)
        results: list[Any] = [None] * len(items)
        while left or meanwhile:
            batches = {place: _Batch(call, [items[index] for index in indices]) for place, indices in left.items()}
            for place, batch in batches.items():
                self._inbox(place).put(batch)
            if meanwhile:
                meanwhile()
                meanwhile = None
            for place, batch in batches.items():
                if not batch.wait(self._timeout):
                    self._inboxes.pop(place).put(None)
                    self._workers[place].abandoned = True  # type: ignore[attr-defined]  # see envs.discrete.isolated
                    batch.results.append(Failure(TimeoutError(f"no answer within {self._timeout:g} s"), hung=True))
                indices = left[place]
                for index, result in zip(indices, batch.results, strict=False):
                    results[index] = _raised(result)
                del indices[: len(batch.results)]
            left = {place: indices for place, indices in left.items() if indices}
        return results

    def _inbox(self, place: int) -> SimpleQueue[_Batch[Any, Any] | None]:
        if place not in self._inboxes:
            inbox = self._inboxes[place] = SimpleQueue()
            self._workers[place] = threading.Thread(target=_work, args=(inbox,), name=f"palaestra-{place}", daemon=True)
            self._workers[place].start()
        return self._inboxes[place]

    def close(self) -> None:
        """Let the threads end."""
        for inbox in self._inboxes.values():
            inbox.put(None)
        self._inboxes.clear()


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

    def wait(self, timeout: float | None) -> bool:
        """In the caller: True when all is done; False when a call took too long, and the batch is then abandoned."""
        if timeout is None:
            return self._done.wait()
        left = timeout - (perf_counter() - self._began)  # it may have begun long ago: others were waited for first
        while not self._done.wait(max(left, 0.001)):
            with self._lock:  # no call can end now
                left = timeout - (perf_counter() - self._began)
                running = len(self.results) == self._position < len(self._items)
                if running and left <= 0:
                    self._abandoned = True
                    return False
        return True


def _work(inbox: SimpleQueue[_Batch[Any, Any] | None]) -> None:
    while (batch := inbox.get()) is not None:
        if not batch.run():
            return


def _attempt(call: Callable[[Item], Result], item: Item) -> Result | Failure:
    try:
        return call(item)
    except BaseException as error:  # an env that calls sys.exit() must not end the run either
        return Failure(error)


def _raised(result: Result | Failure) -> Result | Failure:
    if isinstance(result, Failure) and isinstance(result.error, KeyboardInterrupt):
        raise result.error
    return result
