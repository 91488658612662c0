"""A vLLM server somewhere on a Ray cluster: a child of an actor, which has the GPUs and ends it when it ends.

Weights reach its node through Ray's object store. It listens on the node's address, and whoever reaches that may change
its model, as whoever reaches Ray's own ports may run code: both belong into a network of their own. Run with Ray
on one machine without GPUs. Not run: several machines, GPUs. Left out: placement groups, servers that span nodes.
"""

from __future__ import annotations

import atexit
import os
import tempfile
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from shutil import rmtree
from typing import Any, ClassVar

from palaestra.agents.backends.launch import PYTHON, ServerProcess, check_options, devices_of
from palaestra.agents.backends.server import GoneError
from palaestra.errors import PolicyError, missing_extra

ROOM = 60.0
"""Seconds that a server may wait for room on the cluster before the others go on without it."""
ANSWER = 300.0
"""Seconds in which an actor has to start its server, to take a folder, and to say how its server does."""


class RayServer:
    """`ServerProcess` on a node of a Ray cluster that has room: one CPU, and the GPUs that its options ask for.

    Args:
        folder: Model that it starts with; a folder that is here is sent along, another name is looked up there.
        cluster: Address of the cluster, "auto" for the one of this machine.
        options: vLLM's, as those of `ServerProcess`; so are model, rank and transfer.

    Attributes:
        url: Where it answers.
        pid: Of the server, on its node.
        node: Ray's name of that node.
        transfers: Whether it can be sent weights by `transfer`.

    Raises:
        GoneError: the cluster has no room for it now, or lost its node. MissingExtraError: ray is not installed.
        InputError: the Python of that node has no vLLM.
    """

    _there: ClassVar[weakref.WeakSet[RayServer]] = weakref.WeakSet()
    _sent: ClassVar[tuple[str, Any] | None] = None
    _sending: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, folder: str, *, cluster: str, options: Mapping[str, Any] | None = None, **given: Any) -> None:
        check_options(options or {})
        ray = _joined(cluster)
        gpus = devices_of(options or {}) if ray.cluster_resources().get("GPU") else 0
        python = {PYTHON: os.environ[PYTHON]} if PYTHON in os.environ else {}
        made = ray.remote(_Host).options(
            num_cpus=1, num_gpus=gpus, max_restarts=0, scheduling_strategy="SPREAD",
            runtime_env={"env_vars": python},
        )  # fmt: skip
        self._actor = made.remote()
        RayServer._there.add(self)
        atexit.unregister(_end_all)
        atexit.register(_end_all)  # before Ray leaves, which has registered what it does by now
        late = f"the Ray cluster had no room for it in {ROOM:g} s ({gpus} GPUs, 1 CPU)"
        try:
            ray.get(self._actor.alive.remote(), timeout=ROOM)
            late = f"its actor has not started it in {ANSWER:g} s"
            files = self._put(Path(folder)) if Path(folder).is_dir() else None
            started = self._actor.start.remote(folder, files, dict(options or {}), given)
            self.url, self.pid, self.transfers, self.node = ray.get(started, timeout=ANSWER)
        except ray.exceptions.GetTimeoutError:
            ray.kill(self._actor)  # it would not answer
            RayServer._there.discard(self)
            raise GoneError(late) from None
        except ray.exceptions.RayTaskError as error:
            self.end()
            raise error.as_instanceof_cause() from None
        except ray.exceptions.RayError as error:
            RayServer._there.discard(self)
            raise GoneError(f"its node was lost: {_first(error)}") from None

    @property
    def alive(self) -> bool:
        """Whether actor and server still run."""
        return self._asked("alive") is True

    def died(self) -> PolicyError:
        """Error that says why the server ended: what its log says, or what became of its node."""
        said = self._asked("died")
        return PolicyError(f"the vLLM server on a Ray cluster ended: {' '.join(str(said).split())[-300:]}")

    def there(self, folder: Path) -> Path:
        """Path of a folder of here on the server's node; its files are put into the object store once for all nodes.

        Raises:
            GoneError: the node was lost. PolicyError: it could not write them, as on a full disk.
        """
        import ray

        found = self._asked("take", folder.name, self._put(folder))
        if isinstance(found, ray.exceptions.RayTaskError):
            raise PolicyError(f"the server's node could not write the weights: {_first(found.cause)}") from found.cause
        if isinstance(found, Exception):
            raise GoneError(f"its node was lost: {_first(found)}")
        return Path(found)

    def end(self) -> None:
        """End the server and its actor."""
        import ray

        RayServer._there.discard(self)
        if ray.is_initialized():
            self._asked("end")
            ray.kill(self._actor)
        with RayServer._sending:
            RayServer._sent = None

    def _asked(self, method: str, *arguments: Any) -> Any:
        """Answer of the actor; an error of Ray's if it has none."""
        import ray

        try:
            return ray.get(getattr(self._actor, method).remote(*arguments), timeout=ANSWER)
        except (ray.exceptions.RayError, ray.exceptions.GetTimeoutError) as error:
            return error

    @staticmethod
    def _put(folder: Path) -> Any:
        import ray

        with RayServer._sending:
            if RayServer._sent is None or RayServer._sent[0] != str(folder):
                files = {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}
                RayServer._sent = str(folder), ray.put(files)
            return RayServer._sent[1]


class _Host:
    """The actor: a server as its child, and the folders with weights that it was sent."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="palaestra-served-"))
        self.server: ServerProcess | None = None

    def start(
        self, folder: str, files: dict[str, bytes] | None, options: dict[str, Any], given: dict[str, Any]
    ) -> tuple[str, int, bool, str]:
        import ray

        where = folder if files is None else self.take("start", files)
        log, host = self.folder / "server.log", ray.util.get_node_ip_address()
        self.server = ServerProcess(where, log=log, options=options, host=host, **given)
        return self.server.url, self.server.pid, self.server.transfers, ray.get_runtime_context().get_node_id()

    def take(self, name: str, files: dict[str, bytes]) -> str:
        """Write files into a folder of this name; the one before goes, as vLLM has read all of it when it answers."""
        for other in self.folder.glob("*/"):
            if other.name != name:
                rmtree(other, ignore_errors=True)
        (self.folder / name).mkdir(exist_ok=True)
        for file, data in files.items():
            (self.folder / name / file).write_bytes(data)
        return str(self.folder / name)

    def alive(self) -> bool:
        return self.server is not None and self.server.alive

    def died(self) -> str:
        return "it was never started" if self.server is None else str(self.server.died())

    def end(self) -> None:
        if self.server is not None:
            self.server.end()
        rmtree(self.folder, ignore_errors=True)


def _end_all() -> None:
    """End the servers that are there, so that nodes keep no files."""
    for each in list(RayServer._there):
        each.end()


def _joined(cluster: str) -> Any:
    """Ray, joined to a cluster. Raises PolicyError if there is none at that address."""
    try:
        import ray
    except ImportError:
        raise missing_extra("ray", "ray") from None
    if not ray.is_initialized():
        try:
            ray.init(address=cluster, logging_level="error", log_to_driver=False)
        except Exception as error:  # of every kind
            raise PolicyError(f"ServedPolicy: cannot join the Ray cluster at {cluster!r}: {_first(error)}") from error
    return ray


def _first(error: BaseException) -> str:
    """The first line of an error, of which Ray writes many."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]
