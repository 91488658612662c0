"""Gate for waves of requests on servers that hold one version of the weights at a time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class VersionGate:
    """Lock of threads: users of one version are in together, those of another wait, first come, first served.

    A version is held until all who came in with it have left, so no request meets weights that are being changed. Who
    comes while another version waits queues behind it: neither side starves.

    Example:
        >>> gate = VersionGate()
        >>> with gate.entered("a"), gate.entered("a"):
        ...     gate.users
        2
    """

    def __init__(self) -> None:
        self.version: str | None = None
        self.users = 0
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()

    def rename(self, version: str) -> None:
        """The servers have `version` now, by the will of all who are in; who waits for it may come in."""
        with self._changed:
            if self.users:
                self.version = version
                self._changed.notify_all()

    @contextmanager
    def entered(self, version: str) -> Iterator[None]:
        """Context in which the servers hold `version`; waits until those of another one have left."""
        ticket = object()
        with self._changed:
            self._queue.append(ticket)
            try:
                self._changed.wait_for(lambda: self._queue[0] is ticket and (not self.users or self.version == version))
            finally:
                self._queue.remove(ticket)
                self._changed.notify_all()
            self.version, self.users = version, self.users + 1
        try:
            yield
        finally:
            with self._changed:
                self.users -= 1
                self._changed.notify_all()
