"""`Ranks`: the processes that learn together, what they say to each other, and which of them is missing.

Two channels. What rank 0 announces goes through the store of the process group, so that the others can wait for hours
while it plays; tensors and agreements are collectives, and end after a timeout. A thread of every rank says each second
that it is alive: when a collective fails, the others see who has stopped, or who stayed behind. Left out: going on with
fewer ranks; a run goes on from its last checkpoint, with as many as there are then.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import pickle
import socket
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import polars as pl
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore
from torch.distributed.distributed_c10d import PrefixStore

from palaestra.errors import InputError, LearnerError, PalaestraError, RankError

JOIN = 300.0
"""Seconds for all ranks to begin: what a process imports and loads takes longer than one collective."""
BEAT = 1.0
"""Seconds between two signs of life."""
PATIENCE = 6.0
"""Seconds without one, after a collective failed, until a rank is called gone."""

_alone: ContextVar[bool] = ContextVar("_alone", default=False)
_world: Ranks | None = None


@contextlib.contextmanager
def by_itself() -> Iterator[None]:
    """Context manager in which no learner waits for other ranks, to try whether objects can be made."""
    token = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(token)


def world(timeout: float) -> Ranks | None:
    """`Ranks` of the processes started with this one (RANK, WORLD_SIZE, …, as torchrun sets them), or None if alone.

    None: it was started alone. All ranks must ask; they wait for each other.

    Raises:
        InputError: the variables are not complete.
        RankError: a rank did not come within the timeout.
    """
    global _world
    size = os.environ.get("WORLD_SIZE", "1")
    if _alone.get() or not size.isdigit() or int(size) < 2:
        return None
    if _world is None:
        lacking = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
        if lacking:
            raise InputError(f"WORLD_SIZE={size} but no {lacking[0]}: start the ranks with torchrun, or --ranks {size}")
        _world = Ranks(int(os.environ["RANK"]), int(size), timeout)
    return _world


def leave() -> None:
    """Close the connection to the other ranks; the next learner may join others."""
    global _world
    if _world is not None:
        _world.close()
    _world = None


class Ranks:
    """Communication of this process with the other ranks: gather, sum, broadcast; `timeout`: seconds of each."""

    def __init__(self, rank: int, size: int, timeout: float) -> None:
        self.rank, self.size, self.timeout = rank, size, timeout
        self.calls = self.entered = self.meetings = 0
        self.broken: str | None = None
        self._limit, patience = timedelta(seconds=timeout), max(timeout, JOIN)
        try:
            self.store = self._connect(patience, own=rank == 0 and "TORCHELASTIC_USE_AGENT_STORE" not in os.environ)
            self._alive = self._connect(patience)
            self.store.set(f"who/{rank}", f"process {os.getpid()} on {socket.gethostname()}")
            self.store.wait([f"who/{each}" for each in range(size)], timedelta(seconds=patience))
            self._join()
        except (RuntimeError, OSError) as error:
            raise RankError(
                f"rank {rank} of {size}: not all ranks came within {patience:g} seconds ({_short(error)})"
            ) from error
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True, name="palaestra-beat")
        self._thread.start()
        atexit.register(self.close)

    def close(self) -> None:
        """Close the connections; without this a process does not end cleanly."""
        atexit.unregister(self.close)
        self._ended.set()
        self._thread.join(2 * BEAT)
        if dist.is_initialized() and self.broken is None:
            dist.destroy_process_group()

    def _connect(self, patience: float, *, own: bool = False) -> Any:
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = TCPStore(address, port, is_master=own, wait_for_workers=False, timeout=timedelta(seconds=patience))
        store.set_timeout(self._limit)
        return PrefixStore(f"palaestra/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)

    def _join(self) -> None:
        self.device = torch.device("cpu")
        if torch.cuda.is_available():
            self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", self.rank)) % torch.cuda.device_count())
            torch.cuda.set_device(self.device)
        if not dist.is_initialized():
            backend = "gloo" if self.device.type == "cpu" else "cpu:gloo,cuda:nccl"
            group = PrefixStore("group", self.store)
            dist.init_process_group(backend, store=group, rank=self.rank, world_size=self.size, timeout=self._limit)
        self.talk = dist.new_group(backend="gloo", timeout=self._limit)

    # -- what all ranks do at once ------------------------------------------------------------------------------------

    def gather(self, thing: Any) -> list[Any]:
        """Gather an object of every rank, in their order."""
        self.entered += 1
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, thing, group=self.talk)
        return found

    def add(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum a tensor over the ranks, in place."""
        self.entered += 1
        dist.all_reduce(tensor)
        return tensor

    def same(self, thing: Any) -> Any:
        """Broadcast an object of rank 0; tensors and tables inside travel one by one."""
        self.entered += 1
        said: list[Any] = [None]
        if self.rank == 0:
            said[0], tensors = _taken_apart(thing)
        dist.broadcast_object_list(said, group=self.talk, group_src=0)
        if self.rank:
            return self._put_together(said[0])
        self._send(tensors)
        return thing

    def agree(self, error: Exception | None, what: str) -> None:
        """Raise on all ranks if one has an error, with its message.

        Raises:
            LearnerError: names the rank; where it happened, what happened.
        """
        failed = self.gather(None if error is None else f"{type(error).__name__}: {error}")
        for rank, words in enumerate(failed):
            if words is not None:
                if rank == self.rank and isinstance(error, PalaestraError):
                    raise error
                raise LearnerError(f"{what}: rank {rank} of {self.size}: {words}") from error

    # -- what rank 0 announces ----------------------------------------------------------------------------------------

    def announce(self, thing: Any) -> None:
        """Send the next call from rank 0 to the ranks that wait in `heard`."""
        self._refuse_broken()
        skeleton, tensors = _taken_apart(thing)
        self.store.set(f"call/{self.calls}", skeleton)
        self.calls += 1
        self._send(tensors)

    def heard(self) -> Any:
        """Next announcement of rank 0, however long it takes.

        Raises:
            RankError: rank 0 is gone.
        """
        key = f"call/{self.calls}"
        with self.watching():
            self._wait([key], [0])
        self.calls += 1
        with self.watching():
            return self._put_together(self.store.get(key))

    def assemble(self) -> None:
        """Wait until all ranks are here (loading a model takes some longer than others).

        Raises:
            RankError: one is gone.
        """
        self.meetings += 1
        with self.watching():
            self.store.set(f"here/{self.meetings}/{self.rank}", "")
            self._wait([f"here/{self.meetings}/{rank}" for rank in range(self.size)], list(range(self.size)))

    def _wait(self, keys: list[str], whom: list[int]) -> None:
        """However long it takes, while these ranks are alive."""
        beats, since, pause = self._beats(), dict.fromkeys(whom, time.monotonic()), 0.001
        while not self.store.check(keys):
            now = self._beats()
            for rank in whom:
                if now[rank] != beats[rank]:
                    since[rank] = time.monotonic()
                elif (silent := time.monotonic() - since[rank]) > self.timeout:
                    raise RankError(
                        self._blame(f"rank {rank} of {self.size} has not been alive for {silent:.0f} seconds")
                    )
            if self.store.check(["fault"]):
                raise RankError(self._blame(""))
            beats = now
            time.sleep(pause)
            pause = min(pause * 1.5, 0.05)

    def _send(self, tensors: list[torch.Tensor]) -> None:
        for tensor in tensors:
            self.entered += 1
            dist.broadcast(tensor.detach().cpu().contiguous(), group=self.talk, group_src=0)

    def _put_together(self, skeleton: bytes) -> Any:
        def receive(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
            self.entered += 1
            tensor = torch.empty(shape, dtype=dtype)
            dist.broadcast(tensor, group=self.talk, group_src=0)
            return tensor

        return _Together(io.BytesIO(skeleton), receive).load()

    # -- who is missing -----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Context that turns an unexpected error of this rank or its connection into a RankError on all ranks.

        Raises:
            RankError: names the rank at which it began. What is raised on purpose passes: all ranks raise it.
        """
        self._refuse_broken()
        try:
            yield
        except PalaestraError:
            raise
        except Exception as error:
            raise RankError(self.fault(error)) from error

    def _refuse_broken(self) -> None:
        if self.broken is not None:
            raise RankError(self.broken)

    def fault(self, error: Exception) -> str:
        """Sentence about an error that all ranks agree on."""
        if not _of_connection(error):
            return self._blame(f"rank {self.rank} of {self.size} failed: {type(error).__name__}: {error}")
        try:
            return self._blame(self._missing(error))
        except RuntimeError:
            return self._blame(f"rank 0 of {self.size} is gone: it held the connections")

    def _blame(self, sentence: str) -> str:
        sentence += "; nothing of this update was made; go on from the last checkpoint"
        with contextlib.suppress(RuntimeError):  # who speaks first is right: later failures follow from it
            sentence = self.store.compare_set("fault", "", sentence).decode()
        self.broken = sentence
        return sentence

    def _missing(self, error: Exception) -> str:
        """Who has stopped to say that it is alive; else who has taken part in the fewest collectives."""
        first, end = self._beats(), time.monotonic() + PATIENCE
        moved = {self.rank}
        while len(moved) < self.size and time.monotonic() < end:
            time.sleep(BEAT / 4)
            if self.store.check(["fault"]):
                break
            moved |= {rank for rank, beat in enumerate(self._beats()) if beat != first[rank]}
        gone = [rank for rank in range(self.size) if rank not in moved]
        if gone:
            names = (f"rank {rank} of {self.size} ({self.store.get(f'who/{rank}').decode()})" for rank in gone)
            return f"{' and '.join(names)} is gone"
        entered = [int(beat.split()[-1]) for beat in self._beats()]
        late = entered.index(min(entered))
        if len(set(entered)) == 1:
            return f"the connection between {self.size} ranks failed, all of which are alive ({_short(error)})"
        return f"rank {late} of {self.size} is alive but did not come within {self.timeout:g} seconds"

    def _beats(self) -> list[bytes]:
        keys = [f"beat/{rank}" for rank in range(self.size)]
        return [self.store.get(key) if self.store.check([key]) else b"0 0" for key in keys]

    def _beat(self) -> None:
        number = 0
        with contextlib.suppress(RuntimeError):  # the store is gone, and so is everything
            while not self._ended.wait(BEAT if number else 0.0):
                number += 1
                self._alive.set(f"beat/{self.rank}", f"{number} {self.entered}")


def _of_connection(error: Exception) -> bool:
    """Whether somebody else is the reason."""
    words = ("gloo", "nccl", "connection", "timed out", "timeout", "broken pipe", "socket", "recvvalue", "store")
    known = isinstance(error, dist.DistError | ConnectionError)
    return known or (isinstance(error, RuntimeError) and any(word in str(error).lower() for word in words))


def _short(error: Exception) -> str:
    return str(error).split(". ")[0].split("\n")[0]


# -- things as a few bytes and many tensors ---------------------------------------------------------------------------


class _Apart(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, 5)
        self.tensors: list[torch.Tensor] = []

    def persistent_id(self, thing: Any) -> Any:
        if isinstance(thing, pl.DataFrame):
            file = io.BytesIO()
            thing.write_ipc(file)
            self.tensors.append(torch.frombuffer(bytearray(file.getbuffer()), dtype=torch.uint8))
            return "frame", tuple(self.tensors[-1].shape), torch.uint8
        if isinstance(thing, torch.Tensor):
            self.tensors.append(thing)
            return "tensor", tuple(thing.shape), thing.dtype
        return None


class _Together(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, receive: Any) -> None:
        super().__init__(file)
        self.receive = receive

    def persistent_load(self, known: Any) -> Any:
        kind, shape, dtype = known
        tensor = self.receive(shape, dtype)
        return pl.read_ipc(io.BytesIO(tensor.numpy().tobytes())) if kind == "frame" else tensor


def _taken_apart(thing: Any) -> tuple[bytes, list[torch.Tensor]]:
    file = io.BytesIO()
    pickler = _Apart(file)
    pickler.dump(thing)
    return file.getvalue(), pickler.tensors
