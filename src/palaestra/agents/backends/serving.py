"""A language model and the servers that sample for it: started, given the weights, compared, asked, kept alike.

What is here is kept true by asking: who has which weights is looked at before and after every wave, and a server that
went, or came back with others, is given these again; meanwhile the others answer. `palaestra.agents.served` is the
policy that is made of it.
"""

from __future__ import annotations

import contextlib
import copy
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any, Self

import numpy as np

from palaestra.agents.backends import endpoint, weight_files
from palaestra.agents.backends.dialects import dialect_of
from palaestra.agents.backends.launch import check_options
from palaestra.agents.backends.server import (
    AbsentError,
    Client,
    GoneError,
    LateError,
    LoopThread,
    SampledAnswer,
    ServerError,
)
from palaestra.agents.backends.transfers import TRANSFERS, transfer_of
from palaestra.agents.backends.version_gate import VersionGate
from palaestra.agents.backends.weights import ServerSettings, WeightServer, label_of, sampled
from palaestra.agents.lm import LMPolicy
from palaestra.errors import InputError, PolicyError, nearest

ATTEMPTS = 3


class Serving:
    """Base class of `ServedPolicy`: holds the trained policy `lm` and its servers, and keeps their weights equal."""

    def __init__(
        self,
        lm: LMPolicy,
        *,
        url: str | Sequence[str] | None = None,
        server: str | None = None,
        replicas: int = 1,
        engine: Mapping[str, Any] | None = None,
        dialect: str = "vllm",
        served_name: str | None = None,
        api_key_env: str | None = None,
        concurrency: int = 256,
        timeout: float = 120.0,
        patience: float = 300.0,
        tolerance: float | None = None,
        transfer: str = "folder",
        cluster: str | None = None,
    ) -> None:
        check_distribution(lm.top_p, lm.stop)
        check(
            url,
            server,
            engine,
            dialect,
            replicas=replicas,
            concurrency=concurrency,
            timeout=timeout,
            tolerance=0.05 if tolerance is None else tolerance,
            transfer=transfer,
            cluster=cluster,
        )
        if transfer not in ("auto", "folder") and weight_files.adapting(lm):
            raise InputError(f"ServedPolicy: transfer {transfer!r} is for whole weights; adapters go through a folder")
        self.transfer = transfer_of(transfer, child=server is not None and cluster is None)
        self.lm, self.name, self.patience = lm, lm.name, patience
        self.dialect = dialect_of("vllm" if server else dialect)
        self.loop = loop = LoopThread(int(concurrency))
        exact = server is not None and (engine or {}).get("dtype", "float32") == "float32"
        self._folder = Path(tempfile.mkdtemp(prefix="palaestra-served-"))
        places: Sequence[str | None] = [None] * replicas if server else [url] if isinstance(url, str) else url or ()
        settings = ServerSettings(
            lm.name,
            self.dialect,
            lambda where: Client(where, api_key_env=api_key_env, timeout=timeout, loop=loop),
            self._folder,
            tolerance or (1e-3 if exact else 0.05),
            dict(engine or {}),
            len(places),
            self.transfer,
            cluster,
        )
        self.servers = [WeightServer(settings, i, url=each, served_name=served_name) for i, each in enumerate(places)]
        self.number: int | None = None
        self._numbered: str | None = None  # the digest whose number that is
        self._gate, self._writing, self._held = VersionGate(), threading.Lock(), 0
        self._clean = weakref.finalize(self, rmtree, self._folder, ignore_errors=True)

    def answers(self, prompts: Sequence[np.ndarray], seeds: Sequence[int]) -> list[SampledAnswer | PolicyError]:
        """Sampled answers of the servers with the current weights, or errors; asks again if one had others."""
        lm, ends = self.lm, [int(end) for end in self.lm._ends]
        passing = (GoneError, AbsentError) if len(self.servers) == 1 else (GoneError, AbsentError, LateError)
        found: list[SampledAnswer | PolicyError] = [GoneError("not asked") for _ in prompts]
        with self._turn():
            for _ in range(ATTEMPTS):
                again = [i for i, each in enumerate(found) if isinstance(each, passing)]
                if not again:
                    break
                try:
                    there, digest = self._sync(None)
                except PolicyError as error:
                    return [error if i in again else each for i, each in enumerate(found)]
                asked = [prompts[i] for i in again], [seeds[i] for i in again]
                answers = sampled(there, lm, digest, *asked, tokens=lm.max_new_tokens, ends=ends)
                same = {each: self._still(each, digest) for each in there}
                late: dict[WeightServer, LateError] = {}
                for i, (server, answer) in zip(again, answers, strict=True):
                    changed = GoneError("the server had other weights when it had answered")
                    found[i] = answer if same[server] else changed
                    if isinstance(answer, passing) and isinstance(answer, LateError):
                        late[server] = answer
                for server, why in late.items():
                    server.absent(why)
        return found

    def _still(self, server: WeightServer, digest: str) -> bool:
        try:
            return server.serves(self.lm, digest)
        except ServerError:
            return False

    # The servers' weights

    @property
    def syncs(self) -> int:
        """How often a server was given weights, of all servers."""
        return sum(each.loaded for each in self.servers)

    def fingerprint(self) -> str:
        """A digest of the weights that learn, from 64 numbers of each."""
        return weight_files.fingerprint(self.lm)

    def export(self, folder: str | Path) -> None:
        """Write into a folder the files that a server loads: the adapter, or the whole model with a head of its own."""
        weight_files.export(self.lm, folder)

    def sync(self, version: int | None = None) -> None:
        """Make sure that the servers have the current weights and answer with them; send them if not.

        version: their number, updates so far; the servers call them "12-d1e6…", and no server is asked for an answer
        while it calls them otherwise. Of several servers, those that are absent get them when they are back.

        Raises:
            PolicyError: there is no server within `patience`; one cannot take weights, or has another tokenizer; or it
                answers with other weights than it was given. Nothing is lost: the weights are here.
        """
        with self._turn():
            self._sync(version)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Context in which the servers keep this policy's weights; a twin with others waits until it ends."""
        with self._gate.entered(self.fingerprint()):
            self._held += 1
            try:
                yield
            finally:
                self._held -= 1

    def _turn(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._held else self._gate.entered(self.fingerprint())

    def sharing(self, lm: LMPolicy) -> Self:
        """A policy with the same servers and other weights: whose turn it is they hold, the other waits."""
        twin = copy.copy(self)
        twin.lm, twin._held = lm, 0
        return twin

    def _sync(self, version: int | None) -> tuple[list[WeightServer], str]:
        """Servers that have the current weights, and the digest of these."""
        began, digest = time.monotonic(), self.fingerprint()
        if version is None and digest == self._numbered:
            version = self.number
        while True:
            there: list[WeightServer] = []
            problems: list[ServerError] = []
            for server, problem in zip(self.servers, self._brought(digest, version), strict=True):
                if problem is None:
                    there.append(server)
                    continue
                problems.append(problem)
                if not server.loading:
                    server.absent(problem)
            if there:
                self._numbered, self.number = digest, version
                if not any(each.loading for each in self.servers):
                    self._forget_others(digest)
                if self.transfer is not None and len(there) == len(self.servers):
                    self.transfer.release()
                return there, digest
            if time.monotonic() - began > self.patience and not any(each.loading for each in self.servers):
                raise PolicyError(
                    f"ServedPolicy {self.name!r}: {problems[0]}, for {self.patience:g} s; start it again: a run goes "
                    "on with --resume"
                ) from problems[0]
            time.sleep(min(1.0, self.patience / 10))

    def _brought(self, digest: str, version: int | None) -> list[ServerError | None]:
        """Bring all servers to these weights, at the same time; the error of each that is absent."""
        only = len(self.servers) == 1
        wait = only or not self.syncs

        def bring(server: WeightServer) -> ServerError | None:
            if server.resting and any(each.digest for each in self.servers):
                return GoneError("it was absent a moment ago")
            try:
                server.start(self.lm, wait=wait)
                if not server.serves(self.lm, digest):
                    server.give(self.lm, digest, label_of(version, digest), lambda: self._written(digest))
                elif (digest, version) != (self._numbered, self.number) and not self.adapting:
                    assert server.client is not None
                    self.dialect.name(server.client, label_of(version, digest))
            except GoneError as error:
                return error
            except LateError as error:  # one of several that hangs is absent like one that is gone
                if only:
                    raise
                return error
            return None

        if only:
            return [bring(self.servers[0])]
        with ThreadPoolExecutor(len(self.servers)) as pool:
            return list(pool.map(bring, self.servers))

    @property
    def adapting(self) -> bool:
        """Whether the servers are given adapters rather than whole weights."""
        return weight_files.adapting(self.lm)

    def _written(self, digest: str) -> Path:
        with self._writing:
            if not (self._folder / digest).exists():
                self.export(self._folder / digest)
        return self._folder / digest

    def _forget_others(self, digest: str) -> None:
        for other in self._folder.glob("*/"):
            if other.name != digest:
                rmtree(other, ignore_errors=True)

    def close(self) -> None:
        """End servers that were started here, and remove the weights that were written for them."""
        for server in self.servers:
            server.close()
        self.loop.close()
        self._clean()


def check_distribution(top_p: Any = 1.0, stop: Any = ()) -> None:
    """Raises InputError for a set `top_p` or `stop`, with which server log-probabilities are not the policy's."""
    if top_p != 1 or stop:
        raise InputError(
            f"ServedPolicy: top_p={top_p!r}, stop={stop!r}: what a server says of its tokens is then not what is "
            "learned from here; leave them out, or let the policy answer here (kind: lm)"
        )


def check(
    url: Any = None,
    server: Any = None,
    engine: Any = None,
    dialect: str = "vllm",
    replicas: Any = 1,
    transfer: Any = "folder",
    cluster: Any = None,
    **numbers: Any,
) -> None:
    """Raises InputError for options of a `ServedPolicy`'s server that are invalid or contradict each other."""
    if (url is None) == (server is None):
        raise InputError("ServedPolicy: give url= of a server that runs, or server='vllm' to start one")
    if server not in (None, "vllm"):
        raise InputError(f"ServedPolicy: server is {server!r}{nearest(str(server), ['vllm'])}; start others yourself")
    if engine and server is None:
        raise InputError("ServedPolicy: engine= is for a server that is started here (server='vllm')")
    if isinstance(replicas, bool) or not isinstance(replicas, int) or replicas < 1:
        raise InputError(f"ServedPolicy: replicas is {replicas!r}, must be 1 or more")
    if replicas > 1 and server is None:
        raise InputError("ServedPolicy: replicas= is for servers that are started here; give url= a list instead")
    if cluster is not None and (server is None or not isinstance(cluster, str)):
        raise InputError(f"ServedPolicy: cluster is {cluster!r}: the address of a Ray cluster, for server='vllm'")
    check_options(engine or {})
    dialect_of(dialect)
    if transfer not in TRANSFERS:
        raise InputError(f"ServedPolicy: transfer {transfer!r} is unknown{nearest(str(transfer), TRANSFERS)}")
    if transfer not in ("auto", "folder") and dialect != "vllm":
        raise InputError(f"ServedPolicy: transfer {transfer!r} is vLLM's; dialect {dialect!r} reads a folder")
    places = [url] if url is None or isinstance(url, str) else url
    if not isinstance(places, list | tuple) or not places:
        raise InputError(f"ServedPolicy: url is {url!r}, expected an address or a list of addresses")
    for place in places:
        endpoint.check_address(place, "ServedPolicy: url")
    if len(set(places)) < len(places):
        raise InputError("ServedPolicy: url names one address twice; a replica is a server of its own")
    for name in ("concurrency", "timeout", "tolerance"):
        value = numbers.get(name, 1)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise InputError(f"ServedPolicy: {name} is {value!r}, must be above 0")
