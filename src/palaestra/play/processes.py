"""The executor `processes`: workers on this machine, each a process with one torch thread.

Weights are a file that every worker reads, tables come back as Arrow through a pipe. No worker is forked from the
driver: threads of torch and of polars do not survive that. A worker whose parent is gone ends itself.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

from palaestra.errors import PalaestraError
from palaestra.foundation.files import atomic_write
from palaestra.play import forkserver
from palaestra.play.executors import EXECUTORS
from palaestra.play.plan import Plan
from palaestra.play.shards import Player, PlayJob, ShardResult
from palaestra.play.workers import LOSSES, Lost, Spread, WorkerPool

LAST = 5.0
"""Most seconds that a worker without a parent takes to remove its folder."""


@EXECUTORS.register("processes")
class Processes(Spread):
    """Executor in worker processes on this machine: for more cores, or beside a learner that computes.

    workers: how many. shards: parts of a plan; they fix every bit of the table, the workers do not; 16 if the recipe
    does not say. late: a shard that takes so many times as long as usual is given to a second worker; None: never.
    imports: modules that a worker imports first; those of the recipe. The other options are those of `local`. What
    cannot be pickled (a function inside a function) is played here.

    Raises:
        InputError: a number is out of range.
    """

    def __init__(
        self,
        workers: int = 2,
        shards: int | None = None,
        late: float | None = 3.0,
        concurrency: int = 256,
        timeout: float | None = 60.0,
        retries: int = 0,
        max_turns: int = 1000,
        imports: Sequence[str] = (),
    ) -> None:
        super().__init__(workers, shards, late, concurrency, timeout, retries, max_turns, imports)

    def start_pool(self) -> tuple[tuple[Any, ...], Callable[[], WorkerPool]]:
        """Key and factory of a pool of processes."""
        return ("processes", self.workers, self.late), lambda: WorkerPool(ProcessBackend(self.workers or 1), self.late)


class _Worker:
    """A process, the end of its pipe that is here, and whether it is ready and has nothing to do."""

    def __init__(self, folder: str) -> None:
        languages = forkserver.LANGUAGE if "transformers" in sys.modules else ()  # whoever has none plays none
        context = forkserver.context(*forkserver.TORCH, *languages)
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, folder, dict(os.environ)), name="palaestra-worker")
        self.process.start()
        theirs.close()  # so that the end of the process is the end of the pipe
        self.ready = self.idle = False

    def end(self, patience: float = 0.0) -> int | None:
        self.connection.close()
        self.process.join(patience)  # who is dying has something to say
        self.process.kill()
        self.process.join()
        return self.process.exitcode


class ProcessBackend:
    """`WorkerBackend` whose `count` workers are processes on this machine."""

    one_machine = True

    def __init__(self, count: int) -> None:
        self.count, self._stillborn = count, 0
        self._members: dict[int, _Worker] = {}
        self._numbers = itertools.count()
        self._folder = tempfile.mkdtemp(prefix="palaestra-")
        self._at_exit = Finalize(self, _end_all, (self._members, self._folder), exitpriority=100)

    def start(self) -> None:
        """Start missing processes; returns before they are ready."""
        while self._at_exit.still_active() and len(self._members) < self.count:
            self._members[next(self._numbers)] = _Worker(self._folder)

    def idle(self) -> list[int]:
        """Numbers of processes that are ready and have nothing to do."""
        return [number for number, member in self._members.items() if member.idle]

    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [member.process.pid or 0 for member in self._members.values()]

    def dumps(self, value: Any) -> bytes:
        """A maker (env or team factory) as bytes, by plain pickle."""
        return pickle.dumps(value)

    def put(self, value: Any) -> str:
        """Write the value to a file atomically; returns its path."""
        path = Path(self._folder) / str(next(self._numbers))
        with atomic_write(path) as temporary, temporary.open("wb") as file:
            pickle.dump(value, file, protocol=5)
        return str(path)

    def forget(self, place: str) -> None:
        """Delete the published file."""
        with contextlib.suppress(OSError):
            os.unlink(place)

    def give(self, worker: int, job: PlayJob, plans: Sequence[Plan]) -> None:
        """See `WorkerBackend.give`; a worker that is gone is found by `wait`."""
        member = self._members[worker]
        member.idle = False
        with contextlib.suppress(OSError):
            member.connection.send((job, plans))

    def wait(self, seconds: float) -> list[tuple[int, ShardResult | Lost]]:
        """Results that arrived within so many seconds."""
        by_connection: dict[Any, int] = {member.connection: number for number, member in self._members.items()}
        news: list[tuple[int, ShardResult | Lost]] = []
        for connection in wait(list(by_connection), seconds):
            number = by_connection[connection]
            member = self._members[number]
            try:
                said = member.connection.recv()
            except (EOFError, OSError, pickle.UnpicklingError):  # killed, perhaps in the middle of an answer
                news.append((number, self._replace(number)))
                continue
            except KeyboardInterrupt:  # perhaps in the middle of an answer: nobody would understand the rest of it
                self.drop(number)
                raise
            member.idle = True
            if said is None:
                member.ready, self._stillborn = True, 0
            else:
                news.append((number, said))
        return news

    def _replace(self, number: int) -> Lost:
        member = self._members.pop(number)
        code = member.end(patience=1.0)
        self._stillborn += not member.ready
        if self._stillborn >= LOSSES:
            raise PalaestraError(
                f"{self._stillborn} worker processes ended with {code} before they could play: what they say is on "
                "stderr; a script that starts them needs `if __name__ == '__main__':` around what it does"
            )
        self.start()
        return Lost(f"its process ended with {code}")

    def drop(self, worker: int) -> None:
        """End a process and start another one."""
        if worker in self._members:
            self._members.pop(worker).end()
            self.start()

    def close(self) -> None:
        """End all processes."""
        self._at_exit()


def _end_all(members: dict[int, _Worker], folder: str) -> None:
    for member in list(members.values()):
        member.end()
    members.clear()
    shutil.rmtree(folder, ignore_errors=True)


# -- in the worker ----------------------------------------------------------------------------------------------------


def _work(connection: Connection, folder: str, environment: Mapping[str, str]) -> None:
    forkserver.begin(environment, folder)
    forkserver.one_thread()
    player = Player(_read)
    with contextlib.suppress(OSError):  # the other end is gone, as below
        connection.send(None)
    while True:
        try:
            job, plans = connection.recv()
            connection.send(player.play(job, plans))
        except (EOFError, OSError):  # the other end is gone, and with it whoever would remove the folder
            time.sleep(LAST)  # the thread of `begin` does so now, and ends this process
            return


def _read(place: str) -> Any:
    with open(place, "rb") as file:
        return pickle.load(file)
