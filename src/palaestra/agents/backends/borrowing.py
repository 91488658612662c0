"""A policy in a worker process that asks servers which the process that learns has started and given weights.

It is told their addresses and the digest of the weights for each plan. It never starts or ends a server and never gives
one weights, and it needs no weights of its own. A server that went, or has others now, is left out; without any, what
was not answered is counted, and the process that learns brings servers back and has it played again.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple
from urllib.parse import urlsplit

import numpy as np

from palaestra.agents.backends.asking import Asking
from palaestra.agents.backends.server import AbsentError, GoneError, LoopThread, SampledAnswer, ServerError
from palaestra.agents.backends.weights import ServerSettings, WeightServer
from palaestra.agents.lm import LMPolicy
from palaestra.errors import PolicyError

_WEIGHTLESS: ContextVar[frozenset[str]] = ContextVar("_WEIGHTLESS", default=frozenset())


@contextmanager
def without_weights(names: Collection[str]) -> Iterator[None]:
    """Context in which served policies of these names are made without weights, for who only asks their servers."""
    token = _WEIGHTLESS.set(frozenset(names))
    try:
        yield
    finally:
        _WEIGHTLESS.reset(token)


def weightless() -> frozenset[str]:
    """Names of the policies that are to be made without weights; see `without_weights`."""
    return _WEIGHTLESS.get()


class Lent(NamedTuple):
    """Data with which a worker asks the servers of a policy.

    Attributes:
        digest: Of the weights that they have and keep.
        places: Address of each, and what it calls its model.
        ours: Whether the run has started all of them.
        concurrency: Requests at a time of one worker.
    """

    digest: str
    places: tuple[tuple[str, str], ...]
    ours: bool
    concurrency: int

    @property
    def one_machine(self) -> bool:
        """Whether one of them can only be asked on its own machine."""
        hosts = [urlsplit(url).hostname or "" for url, _ in self.places]
        return any(host in ("localhost", "::1", "::", "0.0.0.0") or host.startswith("127.") for host in hosts)


class Borrower(Asking):
    """Policy without parameters that asks the servers of a `Lent`.

    Attributes:
        unanswered: Requests so far for which there was no server.
    """

    def __init__(self, lm: LMPolicy, settings: ServerSettings, loop: LoopThread) -> None:
        self.lm, self.name, self.settings, self.loop = lm, lm.name, settings, loop
        self.servers: list[WeightServer] = []
        self.unanswered = 0
        self._lent: Lent | None = None
        self._changing = threading.RLock()

    def use(self, lent: Lent) -> None:
        """Ask these servers, for these weights, from now on; connections to those known already stay open.

        Who lends them has just seen them, so one that was absent here is asked again.
        """
        if lent != self._lent:
            self._lent, self.loop.most = lent, lent.concurrency
            known = {each.client.url: each for each in self.servers if each.client is not None}
            self.servers = [
                known.pop(url) if url in known else WeightServer(self.settings, place, url=url)
                for place, (url, _) in enumerate(lent.places)
            ]
            for each in known.values():
                each.close()
        for server, (_, name) in zip(self.servers, lent.places, strict=True):
            server.served_name = name
            server.trust(lent.digest)

    def answers(self, prompts: Sequence[np.ndarray], seeds: Sequence[int]) -> list[SampledAnswer | PolicyError]:
        """As `Asking.answers`, and count what failed for want of a server."""
        found = super().answers(prompts, seeds)
        self.unanswered += sum(isinstance(each, GoneError | AbsentError) for each in found)
        return found

    def _ready(self) -> tuple[list[WeightServer], str]:
        assert self._lent is not None
        digest, there, why = self._lent.digest, list[WeightServer](), "none was lent"
        for server in [each for each in self.servers if not each.resting] or self.servers:
            try:
                if not server.holds(self.lm, digest):
                    raise GoneError("a server has other weights than it was given")
            except ServerError as error:
                why = str(error)
                server.absent(error)
            else:
                server.digest = digest
                there.append(server)
        if not there:
            raise GoneError(f"no server answers for {self.name!r}: {why}")
        return there, digest

    def _ours(self, server: WeightServer) -> bool:
        return self._lent is not None and self._lent.ours

    def _said_by(
        self, server: WeightServer, prompts: Sequence[np.ndarray], said: Sequence[SampledAnswer]
    ) -> list[bool]:
        return [False] * len(said)
