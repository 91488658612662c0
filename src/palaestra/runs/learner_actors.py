"""Seeds of a run in actors of a Ray cluster (`--learner ray`): each with resources of its own, watched from here.

The actor learns; it asks for generators (`options.cluster` of a served policy) and workers (`--on ray`) as a process of
this machine would, so each is a pool of its own. What it writes goes into the folder of the run, which its node has to
see, and what it says on stderr into a log there, which this process prints. Trials of a search for settings and
variants of a comparison run in such actors, too. Left out: learners that span nodes.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from palaestra.errors import InputError, PalaestraError, RecipeError, missing_extra
from palaestra.foundation.registry import read_call
from palaestra.learning import run_lock
from palaestra.play import cluster
from palaestra.runs.scripts import call
from palaestra.runs.seed_jobs import LOG

SECRET = re.compile("KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
"""Names of environment variables that stay on this machine: nodes have their own."""


class LearnerActors:
    """Place of the processes that learn: actors of a Ray cluster, one for each seed.

    cpus, gpus, resources: that each of them asks for. address: of a running cluster; default: what RAY_ADDRESS or
    `ray start` says, else one on this machine that ends with the run.

    Raises:
        InputError: a number is out of range. MissingExtraError: ray is not installed.
    """

    def __init__(
        self,
        cpus: float = 1,
        gpus: float = 0,
        address: str | None = None,
        resources: Mapping[str, float] | None = None,
    ) -> None:
        if cpus < 0 or gpus < 0:
            raise InputError(f"learner: cpus={cpus}, gpus={gpus}, expected 0 or more")
        try:
            import ray  # noqa: F401
        except ImportError:
            raise missing_extra("ray", "ray") from None
        self.cpus, self.gpus, self.address, self.resources = cpus, gpus, address, dict(resources or {})

    @staticmethod
    def read(text: str) -> LearnerActors:
        """Place that a text names, `ray` or `ray(cpus=2, gpus=1)`; RecipeError for another one."""
        name, values, options = read_call(text)
        if name != "ray":
            raise RecipeError(f"--learner {text!r}: expected 'ray' or 'ray(cpus=2, gpus=1)'")
        made: LearnerActors = call(LearnerActors, options, "--learner", *values)
        return made

    @contextlib.contextmanager
    def joined(self) -> Iterator[None]:
        """Context in which this process belongs to the cluster."""
        import ray

        ours = cluster._connect(self.address)
        try:
            yield
        finally:
            if ours:
                ray.shutdown()

    @contextlib.contextmanager
    def pool(self, jobs: int) -> Iterator[ActorPool]:
        """Pool of up to so many actors at a time, which are ended at once if anything goes wrong here."""
        made = ActorPool(self, jobs)
        try:
            yield made
        except BaseException:
            made.end()
            raise
        finally:
            made.threads.shutdown()


class ActorPool:
    """Executor of calls, each in a new actor; as much of `concurrent.futures.Executor` as runs need.

    threads: wait for the actors.
    """

    def __init__(self, learner: LearnerActors, jobs: int) -> None:
        self.learner, self.threads = learner, ThreadPoolExecutor(jobs)
        self._actors: set[Any] = set()
        self._lock, self._ended, self._placed = threading.Lock(), False, 0

    def submit(self, function: Callable[..., Any], job: Any, *arguments: Any) -> Future[Any]:
        """Future of `function(job, *arguments)` in an actor, which looks whether it sees the folder of a `SeedJob`.

        The future raises what the function raises, and PalaestraError if the actor was lost or found no room.
        """
        return self.threads.submit(self._call, function, (job, *arguments), getattr(job, "directory", None))

    def map(self, function: Callable[..., Any], *arguments: Iterable[Any]) -> list[Any]:
        """What `function` returns of each tuple of arguments, in their order; raises as the futures of `submit` do."""
        return [each.result() for each in [self.submit(function, *given) for given in zip(*arguments, strict=True)]]

    def end(self) -> None:
        """End all actors; calls that were not begun never are."""
        import ray

        with self._lock:
            self._ended, actors = True, list(self._actors)
        self.threads.shutdown(wait=False, cancel_futures=True)
        for each in actors:
            ray.kill(each)

    def _call(self, function: Callable[..., Any], arguments: tuple[Any, ...], folder: Path | None) -> Any:
        import ray

        learner = self.learner
        made = ray.remote(_Learner).options(
            num_cpus=learner.cpus, num_gpus=learner.gpus, resources=learner.resources or None, max_restarts=0
        )
        with self._lock:
            if self._ended:
                raise PalaestraError("the run has ended")
            actor = made.remote([os.path.abspath(each) for each in sys.path], os.getcwd())
            self._actors.add(actor)
        placed = False
        try:
            self._wait_for(actor.ready.remote(plain_variables(os.environ)))
            with self._lock:
                self._placed += 1
            placed = True
            if folder is not None:
                ray.get(actor.write_into.remote(str(folder.absolute()), _owner(folder)))
            return ray.get(actor.call.remote(ray.cloudpickle.dumps((function, arguments))))
        except ray.exceptions.GetTimeoutError:
            there = ray.cluster_resources()
            raise PalaestraError(
                f"--learner: no room on the cluster in {cluster.PATIENCE:.0f} s for {learner.cpus:g} CPUs and "
                f"{learner.gpus:g} GPUs; it has {there.get('CPU', 0):g} and {there.get('GPU', 0):g} in all: ask for "
                "fewer, or give play fewer workers"
            ) from None
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except ray.exceptions.RayError as error:
            raise PalaestraError(
                f"the actor that learns was lost ({cluster._first(error)}); go on from its last checkpoint with "
                "--resume"
            ) from error
        finally:
            with self._lock:
                self._actors.discard(actor)
                self._placed -= placed
            ray.kill(actor)

    def _wait_for(self, ready: Any) -> None:
        """Wait until an actor is there, as long as another one of this run has a place that it will leave."""
        import ray

        while True:
            try:
                ray.get(ready, timeout=cluster.PATIENCE)
                return
            except ray.exceptions.GetTimeoutError:
                with self._lock:
                    if not self._placed or self._ended:
                        raise


def plain_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment variables that an actor is given: not Ray's and CUDA's own, and none that sounds like a secret.

    >>> plain_variables({"OMP_NUM_THREADS": "1", "OPENAI_API_KEY": "x", "HF_TOKEN": "y", "RAY_ADDRESS": "auto"})
    {'OMP_NUM_THREADS': '1'}
    """
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(("RAY_", "CUDA_")) and not SECRET.search(name)
    }


def _owner(folder: Path) -> str:
    """Text of the lock of a run's folder, which names the process that holds it."""
    return (folder.parent / run_lock.NAME).read_text()


class _Learner:
    """The actor. path, place: where modules are found, and the current folder of the driver."""

    def __init__(self, path: list[str], place: str) -> None:
        sys.path += [folder for folder in path if folder not in sys.path]
        with contextlib.suppress(OSError):  # of another machine
            os.chdir(place)

    def ready(self, environment: Mapping[str, str]) -> None:
        """Take these environment variables where they are not set; answers once it is there."""
        for name, value in environment.items():
            os.environ.setdefault(name, value)

    def write_into(self, folder: str, owner: str) -> None:
        """Look whether the folder of the run is seen here, and write what is said on stderr into the seed's."""
        place = Path(folder)
        try:
            seen = _owner(place)
        except OSError:
            seen = ""
        if not seen or seen != owner:
            import ray

            raise InputError(
                f"{place.parent} is not seen on the node {ray.util.get_node_ip_address()}, where --learner runs: "
                "choose --out on a file system that all nodes share"
            )
        place.mkdir(parents=True, exist_ok=True)
        with open(place / LOG, "ab") as log:
            os.dup2(log.fileno(), 2)

    def call(self, packed: bytes) -> Any:
        import ray

        function, arguments = ray.cloudpickle.loads(packed)
        return function(*arguments)
