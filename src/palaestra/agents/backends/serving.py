"""A language model and the servers that sample for it: started, given the weights, compared, asked, kept alike.

What is here is kept true by asking: who has which weights is looked at before and after every wave, and a server that
went, or came back with others, is given these again; meanwhile the others answer. With `inflight` the weights may be
changed while answers are written (`renew`); each token then has the number of those that said it.
Workers in other processes may ask meanwhile (`lent`). `palaestra.agents.served` is the policy that is made of it.
"""

from __future__ import annotations

import contextlib
import copy
import math
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any, Self

from palaestra.agents.backends import endpoint, weight_files
from palaestra.agents.backends.answering import label_of
from palaestra.agents.backends.asking import Asking
from palaestra.agents.backends.borrowing import Borrower, Lent
from palaestra.agents.backends.dialects import dialect_of
from palaestra.agents.backends.inflight import change as change_weights
from palaestra.agents.backends.launch import check_options
from palaestra.agents.backends.server import Client, GoneError, LateError, LoopThread, ServerError
from palaestra.agents.backends.transfers import TRANSFERS, dialect_for, transfer_of
from palaestra.agents.backends.version_gate import VersionGate
from palaestra.agents.backends.weights import ServerSettings, WeightServer
from palaestra.agents.lm import LMPolicy
from palaestra.errors import InputError, PolicyError, nearest


class Serving(Asking):
    """Base class of `ServedPolicy`: holds the trained policy `lm` and its servers, and keeps their weights equal.

    inflight: whether `renew` may give the servers other weights while they answer.
    """

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
        stream: bool = True,
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
            patience=patience,
            tolerance=0.05 if tolerance is None else tolerance,
            stream=stream,
            transfer=transfer,
            cluster=cluster,
            adapting=weight_files.adapting(lm),
        )
        self.transfer = transfer_of(transfer, child=server is not None and cluster is None)
        self.lm, self.name, self.patience = lm, lm.name, patience
        self.dialect = dialect_of("vllm" if server else dialect)
        self.loop = loop = LoopThread(int(concurrency))
        exact = server is not None and (engine or {}).get("dtype", "float32") == "float32"
        self._folder = weight_files.new_folder()
        places: Sequence[str | None] = [None] * replicas if server else [url] if isinstance(url, str) else url or ()
        self.settings = settings = ServerSettings(
            lm.name,
            self.dialect,
            lambda where: Client(where, api_key_env=api_key_env, timeout=timeout, loop=loop),
            self._folder,
            tolerance or (1e-3 if exact else 0.05),
            dict(engine or {}),
            len(places),
            stream,
            self.transfer,
            cluster,
        )
        self.servers = [WeightServer(settings, i, url=each, served_name=served_name) for i, each in enumerate(places)]
        self._numbered: str | None = None  # the digest whose number that is
        self._gate, self._held = VersionGate(), 0
        self._changing = threading.RLock()  # nobody looks at weights that are half changed
        weakref.finalize(self._gate, rmtree, self._folder, ignore_errors=True)  # it is shared with twins

    # The servers' weights

    @property
    def syncs(self) -> int:
        """How often a server was given weights, of all servers."""
        return sum(each.loaded for each in self.servers)

    @property
    def kept(self) -> int:
        """Tokens of broken-off answers that were gone on with instead of being asked for again, of all servers."""
        return sum(each.kept for each in self.servers)

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
        with self._gate.entered(self._named()):
            self._held += 1
            try:
                yield
            finally:
                self._held -= 1

    @contextmanager
    def lent(self, workers: int) -> Iterator[Lent]:
        """Context in which the servers keep these weights; gives what so many other processes need to ask them.

        Raises:
            PolicyError: as of `sync`.
        """
        with self._turn():
            there, digest = self._sync(None)
            places = tuple((each.client.url, each.served_name or "") for each in there if each.client is not None)
            ours = all(each.child is not None for each in there)
            yield Lent(digest, places, ours, math.ceil(self.loop.most / workers))

    def borrower(self) -> Borrower:
        """A policy without parameters that asks servers with the options of this one; see `Lent`."""
        return Borrower(self.lm, self.settings, self.loop)

    def _ready(self) -> tuple[list[WeightServer], str]:
        return self._sync(None)

    def _turn(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._held else self._gate.entered(self._named())

    def _named(self) -> str:
        with self._changing:
            return self.fingerprint()

    def renew(self, state: Mapping[str, Any], version: int) -> None:
        """Take on other weights, updates so far `version`, and give them to the servers while these answer for it.

        Answers go on where they were broken off. Only for a policy that is `inflight`, by whoever holds its servers. A
        server that is gone gets the weights when it is back.

        Raises:
            PolicyError: a server cannot take weights, or answers with other weights than it was given.
        """
        with self._changing:
            self.lm.load_state_dict(dict(state))
            digest = self.fingerprint()
            if digest == self._numbered:
                self._found(digest, version)
                return
            there = [each for each in self.servers if each.client is not None and each.digest is not None]
            if self.adapting or any(each.transfer is None for each in there):
                self._written(digest)  # before answers are broken off, which then go on the sooner

            def change(server: WeightServer) -> ServerError | None:
                try:
                    change_weights(server, self.lm, digest, version, lambda: self._written(digest))
                except (GoneError, LateError) as error:
                    return error
                return None

            with ThreadPoolExecutor(max(1, len(there))) as pool:
                problems = list(pool.map(change, there))
            for server, problem in zip(there, problems, strict=True):
                if problem is not None:
                    server.absent(problem, answered=True)
            if self.transfer is not None and len(there) == len(self.servers) and not any(problems):
                self.transfer.release()
            self._numbered, self.number = digest, version
            self._gate.rename(digest)

    def sharing(self, lm: LMPolicy) -> Self:
        """A policy with the same servers and other weights: whose turn it is they hold, the other waits."""
        twin = copy.copy(self)
        twin.lm, twin._held = lm, 0
        return twin

    def _sync(self, version: int | None) -> tuple[list[WeightServer], str]:
        """Servers that have the current weights, and the digest of these."""
        with self._changing:
            if not self._folder.exists():
                weight_files.sweep()
            self._folder.mkdir(mode=0o700, exist_ok=True)
            digest = self.fingerprint()
            if digest == self._numbered and (version is None or self.inflight):
                version = self.number
            return self._found(digest, version), digest

    def _found(self, digest: str, version: int | None) -> list[WeightServer]:
        """Servers that have these weights, waited for."""
        began = time.monotonic()
        while True:
            there: list[WeightServer] = []
            problems: list[ServerError] = []
            for server, problem in zip(self.servers, self._brought(digest, version), strict=True):
                if problem is None:
                    there.append(server)
                    continue
                problems.append(problem)
                if not server.loading and not server.resting:  # one that rests was not asked
                    server.absent(problem)
            if there:
                self._numbered, self.number = digest, version
                if not any(each.loading for each in self.servers):
                    self._forget_others(digest)
                if self.transfer is not None and len(there) == len(self.servers):
                    self.transfer.release()
                return there
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
            if server.resting and not server.loading and any(each.digest for each in self.servers):
                return GoneError("it was absent a moment ago")
            try:
                server.start(self.lm, wait=wait)
                if not server.serves(self.lm, digest):
                    server.give(self.lm, digest, label_of(version, digest), lambda: self._written(digest))
                    server.number = version
                elif version is not None:  # None: who asks does not know it, a twin that plays with them may
                    if version != server.number and not self.adapting:  # a twin may have changed the number
                        assert server.client is not None
                        self.dialect.name(server.client, label_of(version, digest))
                    server.number = version
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
        return weight_files.written(self.lm, self._folder / digest)

    def _forget_others(self, digest: str) -> None:
        for other in self._folder.glob("*/"):
            if other.name != digest:
                rmtree(other, ignore_errors=True)

    def close(self) -> None:
        """End servers that were started here, and remove the weights that were written for them.

        Whoever asks again has them started again.
        """
        for server in self.servers:
            server.close()
        if self.transfer is not None:
            self.transfer.release()
        self.loop.close()
        rmtree(self._folder, ignore_errors=True)


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
    *,
    adapting: bool = False,
    **numbers: Any,
) -> None:
    """Raises InputError for options of a `ServedPolicy`'s server that are invalid or cannot work here.

    adapting: whether the servers will be given adapters.
    """
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
    if cluster is not None and (server is None or not isinstance(cluster, str) or not cluster):
        raise InputError(f"ServedPolicy: cluster is {cluster!r}: the address of a Ray cluster, for server='vllm'")
    check_options(engine or {})
    dialect_of(dialect)
    if transfer not in TRANSFERS:
        raise InputError(f"ServedPolicy: transfer {transfer!r} is unknown{nearest(str(transfer), TRANSFERS)}")
    used, needed = "vllm" if server else dialect, dialect_for(transfer)
    if needed not in (None, used):
        raise InputError(
            f"ServedPolicy: transfer {transfer!r} is for servers of dialect {needed!r}, not of {used!r}; use one of "
            + ", ".join(repr(each) for each in TRANSFERS if dialect_for(each) in (None, used))
        )
    if transfer not in ("auto", "folder") and adapting:
        raise InputError(f"ServedPolicy: transfer {transfer!r} is for whole weights; adapters go through a folder")
    if cluster is not None and transfer in ("ipc", "shared_memory"):
        raise InputError(
            f"ServedPolicy: transfer {transfer!r} is of one machine, a cluster's nodes are others; use 'nccl'"
        )
    transfer_of(transfer, child=server is not None and cluster is None)
    places = [url] if url is None or isinstance(url, str) else url
    if not isinstance(places, list | tuple) or not places:
        raise InputError(f"ServedPolicy: url is {url!r}, expected an address or a list of addresses")
    for place in places:
        endpoint.check_address(place, "ServedPolicy: url")
    if len(set(places)) < len(places):
        raise InputError("ServedPolicy: url names one address twice; a replica is a server of its own")
    if not isinstance(numbers.get("stream", True), bool):
        raise InputError(f"ServedPolicy: stream is {numbers['stream']!r}, must be true or false")
    for name in ("concurrency", "timeout", "tolerance", "patience"):
        value = numbers.get(name, 1)
        finite = name == "patience" or value != float("inf")
        if isinstance(value, bool) or not isinstance(value, int | float) or not (value > 0 and finite):
            raise InputError(f"ServedPolicy: {name} is {value!r}, must be above 0")
