"""Replicas of one chat endpoint: each request goes to the one with the fewest under way, none to one that is absent.

A replica that cannot be reached three times in a row counts as absent. It gets no requests, and is asked for its list
of models (`GET models`, which costs nothing) after growing pauses until it answers. Left out: replicas of unequal
speed, and threads. Replicas belong to one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from palaestra.agents.backends.breaker import Breaker, OutageError
from palaestra.agents.backends.wire import Wire
from palaestra.errors import PolicyError

MODELS_TIMEOUT = 10.0
"""Seconds in which a server has to give its list of models."""


@dataclass(eq=False)
class Replica:
    """State of one of a policy's servers: connections, circuit breaker, and counts of requests.

    Attributes:
        under_way: requests that it is answering. sent: all that it got.
        asked: whether it was asked again since it went absent.
    """

    wire: Wire
    address: str
    breaker: Breaker
    under_way: int = 0
    sent: int = 0
    asked: bool = False


class Replicas:
    """Load balancer over one policy's servers: least busy first; absent ones probed; raises after `patience` seconds.

    A single one is probed by requests, as `Breaker` has it; several by their list of models.

    Args:
        replicas: At least one.
        patience: Seconds without any of them after which `enter` raises.
        wait: Seconds before an absent replica is asked again. longest_wait: Longest pause between two such questions.

    Example:
        >>> def replica(under_way):
        ...     return Replica(Wire("http://a"), "", Breaker(patience=1, wait=1, longest_wait=1), under_way)
        >>> busy, idle = replica(3), replica(1)
        >>> Replicas([busy, idle], patience=1, wait=1, longest_wait=1).least() is idle
        True
        >>> Replicas([busy, idle], patience=1, wait=1, longest_wait=1).least(avoid=idle) is busy
        True
    """

    def __init__(self, replicas: Sequence[Replica], *, patience: float, wait: float, longest_wait: float) -> None:
        self.all = list(replicas)
        self.patience, self.wait, self.longest_wait = patience, wait, longest_wait
        self._back = asyncio.Event()
        self._watches: dict[Replica, asyncio.Task[None]] = {}
        self._jitter = random.Random()  # neither an episode's nor the global stream moves

    def least(self, avoid: Replica | None = None) -> Replica | None:
        """Present replica with the fewest requests under way; `avoid` only if no other is; None if none is present."""
        there = [each for each in self.all if not each.breaker.open]
        others = [each for each in there if each is not avoid] or there
        return min(others, key=lambda each: (each.under_way, each.sent)) if others else None

    async def enter(self, avoid: Replica | None = None) -> tuple[Replica, bool]:
        """Wait for a replica; returns it, and whether the request is its probe.

        Raises:
            OutageError: none has answered for `patience` seconds.
        """
        if len(self.all) == 1:
            return self.all[0], await self.all[0].breaker.enter()
        while (found := self.least(avoid)) is None:
            for each in self.all:
                self._watch(each)
            began = max(each.breaker.began for each in self.all)
            left = began + self.patience - time.monotonic()
            if left <= 0 and all(each.asked for each in self.all):
                raise OutageError(
                    f"none of {len(self.all)} replicas has answered for {time.monotonic() - began:.3g} s; the last"
                    f" failure: {max(self.all, key=lambda each: each.breaker.began).breaker.why}"
                )
            self._back = asyncio.Event() if self._back.is_set() else self._back
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._back.wait(), min(max(left, 0.05), 1.0))
        return found, False

    def failed(self, replica: Replica, why: str, *, probe: bool) -> None:
        """Record that a request to a replica got no answer."""
        replica.breaker.failed(why, probe=probe)
        if len(self.all) > 1 and replica.breaker.open:
            self._watch(replica)

    def answered(self, replica: Replica) -> None:
        """Record that a replica answered: it counts as present again."""
        if replica.breaker.open or replica.asked:
            replica.asked = False
            self._back.set()
        replica.breaker.answered()

    @property
    def since(self) -> float | None:
        """Monotonic time since which no replica is present; None if one is."""
        return max(each.breaker.began for each in self.all) if all(each.breaker.open for each in self.all) else None

    async def close(self) -> None:
        """Stop asking absent replicas whether they are back."""
        for task in self._watches.values():
            task.cancel()
        await asyncio.gather(*self._watches.values(), return_exceptions=True)

    def _watch(self, replica: Replica) -> None:
        task = self._watches.get(replica)
        if task is None or task.done():
            self._watches[replica] = asyncio.create_task(self._until_back(replica))

    async def _until_back(self, replica: Replica) -> None:
        pause = self.wait
        while replica.breaker.open:
            await asyncio.sleep(self._jitter.uniform(0.5, 1) * min(pause, self.longest_wait))
            pause *= 2
            try:
                response = await replica.wire.get("/models", MODELS_TIMEOUT)
            except (OSError, PolicyError):  # whatever stands between
                there = False
            else:
                there = response.status < 500  # if it says no, somebody is there
            replica.asked = True
            if there:
                self.answered(replica)
