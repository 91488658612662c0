"""Calls that may hang, or wait: threads make them while the caller watches the clock.

One handover per batch and thread, not per call. Calls that compute are made in one thread, for several would only get
into each other's way; once calls are seen to wait, those that have not begun are spread over many. A call that takes
too long is left behind in its daemon thread, and a new thread makes the calls that remain. Python cannot stop a thread,
so the abandoned call keeps what it holds until it returns; and a call that never releases the interpreter lock cannot
be timed out. Left out: processes, which envs would have to be pickled for.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from time import perf_counter, process_time, thread_time
from typing import Any, Generic, Literal, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

try:
    from resource import RUSAGE_THREAD, getrusage  # Linux

    _usage: Callable[[], Any] | None = functools.partial(getrusage, RUSAGE_THREAD)
except ImportError:
    _usage = None
_NEVER_THE_SAME = itertools.count()

GLANCE = 0.01
"""Seconds between two looks at calls that may wait; a batch that takes less is not looked at."""

WAITS = 0.002
"""A call that waits for so many seconds is worth a handover."""

HANGS = 0.25
"""After so many seconds one call that waits is enough to go by."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Data of a failed call: its exception; `hung` if it timed out and was abandoned."""

    error: BaseException
    hung: bool = False


class Watchdog:
    """Makes calls in threads with a time limit of `timeout` seconds each (None: no limit); `map` returns the results.

    Close it after use.

    threads: how many calls are made at once; what has the same place (modulo `threads`) is called in the same thread,
    one after the other, for some things may be used in one thread only. 0: the caller's own thread, without a limit.
    Default: 1 if there is a limit, else 0. most: the one thread becomes so many, for good, once calls are seen to wait.
    """

    def __init__(self, timeout: float | None, threads: int | None = None, most: int = 1) -> None:
        self._timeout = timeout
        self._threads = (0 if timeout is None else 1) if threads is None else threads
        self._most = most
        self._watch = _Waiting()
        self._inboxes: dict[int, SimpleQueue[_Batch[Any, Any] | None]] = {}
        self._workers: dict[int, threading.Thread] = {}

    def map(
        self,
        call: Callable[[Item], Result],
        items: Sequence[Item],
        places: Sequence[int] | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> list[Result | Failure]:
        """Call `call(item)` for every item within the time limit: results in order, a `Failure` where it failed.

        places: one for each item; default: all the same. meanwhile: is called here while the others are under way.

        Raises:
            KeyboardInterrupt: a call raised it.
        """
        if self._threads == 0:
            if meanwhile:
                meanwhile()
            return [_raised(_attempt(call, item)) for item in items]
        results: list[Any] = [None] * len(items)
        under_way: deque[tuple[int, _Batch[Item, Result], Sequence[int]]] = deque()
        batches: list[_Batch[Item, Result]] = []

        def hand_out(indices: Sequence[int]) -> None:
            lanes: dict[int, list[int]] = {}
            for index in indices:
                lane = 0 if places is None or self._threads == 1 else places[index] % self._threads
                lanes.setdefault(lane, []).append(index)
            for lane, mine in lanes.items():
                batch = _Batch(call, [items[index] for index in mine])
                batches.append(batch)
                self._inbox(lane).put(batch)
                under_way.append((lane, batch, mine))

        try:
            hand_out(range(len(items)))
            if meanwhile:
                meanwhile()
            while under_way:
                lane, batch, indices = under_way.popleft()
                worker = self._workers[lane]
                state = batch.wait(self._timeout, self._watch if self._threads == 1 < self._most and places else None)
                if state == "waiting":
                    self._dismiss(lane)
                    self._threads = self._most
                    hand_out(indices[batch.cut() :])
                    state = batch.wait(self._timeout)
                if state == "hung":
                    if self._workers.get(lane) is worker:
                        self._dismiss(lane)
                    worker.abandoned = True  # type: ignore[attr-defined]  # see envs.discrete.isolated
                    batch.results.append(Failure(TimeoutError(f"no answer within {self._timeout:g} s"), hung=True))
                for index, result in zip(indices, batch.results, strict=False):
                    results[index] = _raised(result)
                hand_out(indices[len(batch.results) : len(batch.items)])
        except BaseException:  # an interruption: what is under way ends, and nothing else begins
            for batch in batches:
                batch.cut()
            raise
        return results

    def _inbox(self, place: int) -> SimpleQueue[_Batch[Any, Any] | None]:
        if place not in self._inboxes:
            inbox = self._inboxes[place] = SimpleQueue()
            self._workers[place] = threading.Thread(target=_work, args=(inbox,), name=f"palaestra-{place}", daemon=True)
            self._workers[place].start()
        return self._inboxes[place]

    def _dismiss(self, place: int) -> None:
        """Let a thread end with the call that it is in."""
        self._inboxes.pop(place).put(None)
        del self._workers[place]

    def close(self) -> None:
        """Tell the threads to end."""
        for inbox in self._inboxes.values():
            inbox.put(None)
        self._inboxes.clear()


class _Batch(Generic[Item, Result]):
    def __init__(self, call: Callable[[Item], Result], items: list[Item]) -> None:
        self.items = items
        self.results: list[Result | Failure] = []
        self._call = call
        self._began = perf_counter()
        self._position = -1  # not begun
        self._abandoned = False
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._watch: _Waiting | None = None

    def run(self) -> bool:
        """Make the calls, in the worker; False if the batch was abandoned meanwhile."""
        left = True
        while left:
            position = len(self.results)
            # The position last: whoever sees it also sees the time that belongs to it.
            self._began = perf_counter()
            self._position = position
            watch = self._watch
            first = position == 0  # when it began nobody had looked yet
            computed, slept = (thread_time(), _slept()) if watch or first else (0.0, 0)
            result = _attempt(self._call, self.items[position])
            watch = watch or (self._watch if first else None)
            if watch:
                watch.note(perf_counter() - self._began, thread_time() - computed, _slept() - slept)
            with self._lock:
                if self._abandoned:
                    return False
                self.results.append(result)
                left = len(self.results) < len(self.items)
        self._done.set()
        return True

    def cut(self) -> int:
        """In the caller: only the call that is under way is still made. Returns how many calls there are now."""
        with self._lock:
            del self.items[len(self.results) + 1 :]
            return len(self.items)

    def wait(self, timeout: float | None, watch: _Waiting | None = None) -> Literal["done", "hung", "waiting"]:
        """In the caller: until all is done, or a call took too long, and the batch is then abandoned.

        With a watch only until calls are seen to wait.
        """
        if timeout is None:
            self._done.wait()
            return "done"
        position, computed = self._position, process_time()
        left = timeout - (perf_counter() - self._began)  # it may have begun long ago: others were waited for first
        while not self._done.wait(max(min(left, GLANCE) if watch else left, 0.001)):
            with self._lock:  # no call can end now
                seconds = perf_counter() - self._began
                left = timeout - seconds
                running = len(self.results) == self._position < len(self.items)
                if running and left <= 0:
                    self._abandoned = True
                    return "hung"
            if watch:
                self._watch = watch
                if position != self._position:
                    position, computed = self._position, process_time()
                still = running and seconds > HANGS and process_time() - computed < 0.25 * seconds
                if still or watch.sees_waiting():
                    return "waiting"
        return "done"


class _Waiting:
    """Which calls wait. One says nothing: a busy machine lets any call wait now and then."""

    def __init__(self) -> None:
        self._calls = self._waiting = 0

    def note(self, seconds: float, computing: float, slept: int) -> None:
        """Adds a batch to what is known about how calls use the processor.

        slept: how often it gave the processor away, less how often that was taken from it.
        """
        self._calls += 1
        self._waiting += slept > 0 and seconds - computing > max(WAITS, 0.75 * seconds)

    def sees_waiting(self) -> bool:
        return self._waiting > max(1, self._calls / 2)


def _slept() -> int:
    """Of this thread: voluntary switches less those that others impose; where nobody counts them, more each time."""
    if _usage is None:
        return next(_NEVER_THE_SAME)
    used = _usage()
    found: int = used.ru_nvcsw - used.ru_nivcsw
    return found


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
