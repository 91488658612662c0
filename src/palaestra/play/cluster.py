"""The executor `ray`: workers are actors of a Ray cluster, on this machine or on many.

Weights are put into the object store once per version, and every node fetches them once; tables come back as Arrow
streams, in one object each. Actors are restarted by us and not by Ray, for only we know which shard they had. Left
out: placement groups, autoscaling hints, GPUs of workers beyond `resources`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from palaestra.errors import PalaestraError, StorageError, missing_extra
from palaestra.play.executors import EXECUTORS
from palaestra.play.forkserver import one_thread
from palaestra.play.plan import Plan
from palaestra.play.shards import Player, PlayJob, ShardResult
from palaestra.play.workers import LOSSES, Lost, Spread, WorkerPool

PATIENCE = 300.0
"""Seconds that one waits for the first worker of a cluster that is full."""


@EXECUTORS.register("ray")
class Ray(Spread):
    """Executor that plays episodes in actors on a Ray cluster: `pip install 'palaestra[ray]'`.

    workers: how many actors; default: one for each CPU of the cluster. address: of a running cluster ("auto",
    "ray://host:10001", "host:6379"); default: what RAY_ADDRESS or `ray start` says, else one on this machine that ends
    with the run. shards: parts of a plan; they fix every bit of the table, the workers do not; 16 if the recipe does
    not say. late: a shard that takes so many times as long as usual is given to a second worker; None: never. cpus,
    resources: that a worker asks for. imports: modules that a worker imports first; those of the recipe. The other
    options are those of `local`.

    Raises:
        InputError: a number is out of range. MissingExtraError: ray is not installed.
    """

    def __init__(
        self,
        workers: int | None = None,
        address: str | None = None,
        shards: int | None = None,
        late: float | None = 3.0,
        cpus: float = 1,
        resources: Mapping[str, float] | None = None,
        concurrency: int = 256,
        timeout: float | None = 60.0,
        retries: int = 0,
        max_turns: int = 1000,
        imports: Sequence[str] = (),
    ) -> None:
        super().__init__(workers, shards, late, concurrency, timeout, retries, max_turns, imports)
        try:
            import ray  # noqa: F401
        except ImportError:
            raise missing_extra("ray", "ray") from None
        self.address, self.cpus, self.resources = address, cpus, dict(resources or {})

    def start_pool(self) -> tuple[tuple[Any, ...], Callable[[], WorkerPool]]:
        """Key and factory of a pool of Ray actors."""
        key = ("ray", self.workers, self.address, self.cpus, *sorted(self.resources.items()), self.late)
        return key, lambda: WorkerPool(RayBackend(self.workers, self.address, self.cpus, self.resources), self.late)

    @staticmethod
    @contextlib.contextmanager
    def shared(options: Mapping[str, Any], seeds: int) -> Iterator[dict[str, Any]]:
        """Context manager that yields executor options for parallel seeds on one cluster, with workers of their own."""
        import ray

        ours = _connect(options.get("address"))
        try:
            places = ray.cluster_resources().get("CPU", 1.0) / max(options.get("cpus", 1), 1e-9)
            own = {"workers": max(1, int(places // seeds)), "address": ray.get_runtime_context().gcs_address}
            yield {**own, **{name: value for name, value in options.items() if name != "address"}}
        finally:
            if ours:
                ray.shutdown()


class _Worker:
    """The actor. path: where modules are found, here and wherever the same folders are."""

    def __init__(self, path: list[str]) -> None:
        sys.path += [folder for folder in path if folder not in sys.path]
        one_thread()
        self.player = Player(_get)

    def ready(self) -> None:
        """Answers once it is there."""

    def pid(self) -> int:
        return os.getpid()

    def play(self, job: PlayJob, plans: bytes) -> bytes:
        """Bytes both ways: Ray takes half a millisecond of the driver to wrap anything else."""
        return _sealed(self.player.play(job, pickle.loads(plans)))


def _get(place: Any) -> Any:
    import ray

    return ray.get(place)


class _Actor:
    """An actor, and the reference of what it is doing."""

    def __init__(self, actor: Any) -> None:
        self.actor, self.doing, self.ready = actor, actor.ready.remote(), False


class RayBackend:
    """`WorkerBackend` whose `count` workers are Ray actors of `cpus` cores; the last ends a cluster started here."""

    _open: ClassVar[int] = 0
    _ours: ClassVar[bool] = False

    def __init__(self, count: int | None, address: str | None, cpus: float, resources: Mapping[str, float]) -> None:
        import ray

        RayBackend._ours |= _connect(address)
        cluster = ray.cluster_resources().get("CPU", 1.0)
        self.count = max(1, int(cluster / max(cpus, 1e-9))) if count is None else count
        self._actor: Any = ray.remote(_Worker).options(
            num_cpus=cpus, resources=dict(resources) or None, scheduling_strategy="SPREAD", max_restarts=0
        )
        self._members: dict[int, _Actor] = {}
        self._numbers = itertools.count()
        self._stillborn, self._hope = 0, time.monotonic()
        self._job: tuple[PlayJob, Any] | None = (
            None  # the last one, and where it is: it is put once, not for every shard
        )
        RayBackend._open += 1

    def start(self) -> None:
        """Start missing actors; returns before they are ready."""
        path = [os.path.abspath(folder) for folder in sys.path]
        while len(self._members) < self.count:
            self._members[next(self._numbers)] = _Actor(self._actor.remote(path))

    def idle(self) -> list[int]:
        """Numbers of actors that are ready and have nothing to do."""
        return [number for number, member in self._members.items() if member.doing is None]

    def actors(self) -> list[Any]:
        """Actors that are ready."""
        return [member.actor for member in self._members.values() if member.ready]

    @property
    def one_machine(self) -> bool:
        """Whether all nodes of the cluster have one address, and this process is on one of them (no `ray://`)."""
        import ray
        from ray.util.client import ray as client

        there = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
        return not client.is_connected() and len(there) == 1

    def dumps(self, value: Any) -> bytes:
        """See `WorkerBackend.dumps`; nested functions are supported."""
        import ray.cloudpickle

        return bytes(ray.cloudpickle.dumps(value))

    def put(self, value: Any) -> Any:
        """Put the value into Ray's object store; returns its reference."""
        import ray

        try:
            return ray.put(value)
        except (ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError) as error:
            raise StorageError(f"ray: no room for the weights in the object store: {_first(error)}; {_FULL}") from error

    def forget(self, place: Any) -> None:
        """Do nothing: the object goes with its last reference."""

    def give(self, worker: int, job: PlayJob, plans: Sequence[Plan]) -> None:
        """Give shards to an idle actor, which plays them."""
        if self._job is None or self._job[0] is not job:
            self._job = job, self.put(job)
        member = self._members[worker]
        member.doing = member.actor.play.remote(self._job[1], pickle.dumps(plans))

    def wait(self, seconds: float) -> list[tuple[int, ShardResult | Lost]]:
        """Results that arrived within so many seconds."""
        import ray

        doing = {member.doing: number for number, member in self._members.items() if member.doing is not None}
        if not doing:
            time.sleep(seconds)
            return []
        there, _ = ray.wait(list(doing), num_returns=1, timeout=seconds)
        if there:
            self._hope = time.monotonic()
        elif not any(member.ready for member in self._members.values()):
            self._refuse_to_wait()
        news = [(doing[reference], self._heard(doing[reference], reference)) for reference in there]
        return [(number, said) for number, said in news if said is not None]

    def _heard(self, number: int, reference: Any) -> ShardResult | Lost | None:
        import ray

        member = self._members[number]
        try:
            answer: bytes | None = ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            why = error.as_instanceof_cause()
            if isinstance(why, ray.exceptions.ObjectStoreFullError | ray.exceptions.OutOfDiskError):
                raise StorageError(f"ray: no room for a table in the object store: {_first(why)}; {_FULL}") from error
            return self._replace(number, _first(why))
        except ray.exceptions.RayError as error:  # its process, its node, or the only copy of what it answered
            return self._replace(number, _first(error))
        member.doing = None
        said = None if answer is None else _opened(answer)
        if said is None:
            member.ready, self._stillborn = True, 0
        elif said.error is not None and hasattr(ray.exceptions, said.error[0]):  # the weights did not reach it
            return self._replace(number, f"{said.error[0]}: {said.error[1]}")
        return said

    def _replace(self, number: int, why: str) -> Lost:
        import ray

        member = self._members.pop(number)
        ray.kill(member.actor)
        self._stillborn += not member.ready
        if self._stillborn >= LOSSES * self.count:
            raise PalaestraError(f"ray: {self._stillborn} workers ended before they could play: {why}")
        self.start()
        return Lost(why)

    def _refuse_to_wait(self) -> None:
        import ray

        if time.monotonic() - self._hope > PATIENCE:
            there, free = ray.cluster_resources(), ray.available_resources()
            raise PalaestraError(
                f"ray: no worker found a place in {PATIENCE:.0f} s: the cluster has {there.get('CPU', 0):g} CPUs, of "
                f"which {free.get('CPU', 0):g} are free; ask for fewer (cpus=, --jobs), or add nodes"
            )

    def drop(self, worker: int) -> None:
        """End an actor and start another one."""
        if worker in self._members:
            self._replace(worker, "it did not answer any more")

    def close(self) -> None:
        """End all actors."""
        import ray

        for member in self._members.values():
            ray.kill(member.actor)
        self._members.clear()
        self._job = None
        RayBackend._open -= 1
        if RayBackend._ours and not RayBackend._open:
            ray.shutdown()
            RayBackend._ours = False


def _sealed(answer: ShardResult) -> bytes:
    """Its table, and behind it all else: who reads an Arrow stream stops at its end, and nothing is copied."""
    rest = pickle.dumps(answer._replace(table=b""))
    return b"".join((answer.table, rest, len(rest).to_bytes(8, "little")))


def _opened(sealed: bytes) -> ShardResult:
    size = int.from_bytes(sealed[-8:], "little")
    answer: ShardResult = pickle.loads(sealed[-8 - size : -8])
    return answer._replace(table=sealed)


_FULL = "give it more (object_store_memory of `ray start`), or cut plans into more parts (play.shards)"


def _connect(address: str | None) -> bool:
    """Join a cluster, or start one on this machine; whether that is ours to end.

    Raises:
        PalaestraError: there is none at that address.
    """
    import ray

    if ray.is_initialized():
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet: dict[str, Any] = {"logging_level": "error", "log_to_driver": False}
    try:
        ray.init(address=address, **quiet) if address else ray.init(include_dashboard=False, **quiet)
    except Exception as error:  # of every kind, plain ones too
        where = f"the cluster at {address!r}" if address else "a cluster"
        raise PalaestraError(f"ray: cannot join {where}: {_first(error)}") from error
    return True


def _first(error: BaseException) -> str:
    """The first line of an error, of which Ray writes many."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]
