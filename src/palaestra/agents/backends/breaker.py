"""Circuit breaker of an endpoint: while nobody answers there, all callers pause and one at a time asks as a probe.

Left out: threads. A breaker belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import random
import time

from palaestra.errors import PolicyError

TRIP = 3
"""Failures in a row, of any callers, after which an endpoint counts as absent."""


class OutageError(PolicyError):
    """Raised when an endpoint has not answered for longer than `patience` seconds."""


class Breaker:
    """Circuit breaker of an endpoint: after failures probes spaced from `wait` seconds; raises after `patience`.

    The pause before the n-th probe is min(longest_wait, wait · 2ⁿ⁻¹) seconds, times a factor from uniform(½, 1).

    Args:
        patience: Seconds without any answer after which `enter` raises.
        wait: Seconds before the first probe.
        longest_wait: Longest pause between probes, seconds.
        since: Monotonic time since which the endpoint is known to be absent; None: it is not known to be.

    Attributes:
        why: Last failure, for messages.
        began: Monotonic time of the first of the failures in a row.
    """

    def __init__(self, *, patience: float, wait: float, longest_wait: float, since: float | None = None) -> None:
        self.patience, self.wait, self.longest_wait = patience, wait, longest_wait
        self.why, self.began = "", since or 0.0
        self._failures, self._probes = TRIP if since else 0, 0
        self._probing = False
        self._changed = asyncio.Event()
        self._jitter = random.Random()  # neither an episode's nor the global stream moves

    @property
    def open(self) -> bool:
        """Whether the endpoint counts as absent, after several failures in a row."""
        return self._failures >= TRIP

    @property
    def seconds(self) -> float:
        """Seconds since the first of the failures in a row; 0 while the endpoint answers."""
        return time.monotonic() - self.began if self.open else 0.0

    async def enter(self) -> bool:
        """Waits until a request may be sent; returns whether it is a probe, to be passed to `failed`.

        Raises:
            OutageError: nobody has answered for `patience` seconds.
        """
        while self.open:
            if self._probing:
                await self._changed.wait()
                continue
            self._probing = True
            left = self.began + self.patience - time.monotonic()
            if left <= 0 and self._probes:
                self.release()
                raise OutageError(f"nobody has answered for {self.seconds:.3g} s; the last failure: {self.why}")
            pause = self._jitter.uniform(0.5, 1) * min(self.longest_wait, self.wait * 2.0 ** min(self._probes, 60))
            await asyncio.sleep(max(0.0, min(pause, left)))
            if self.open:
                self._probes += 1
                return True
            self.release()
        return False

    def failed(self, why: str, *, probe: bool) -> None:
        """Record that a request got no answer from the endpoint."""
        if not self._failures:
            self.began = time.monotonic()
        self._failures += 1
        self.why = why
        if probe:
            self.release()

    def answered(self) -> None:
        """Record that the endpoint answered: it counts as present again."""
        self._failures = self._probes = 0
        self.release()

    def release(self) -> None:
        """Free the place of a probe that was not sent or has its result, so that another one may go."""
        self._probing = False
        self._changed.set()
        self._changed = asyncio.Event()
