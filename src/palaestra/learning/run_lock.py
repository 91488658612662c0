"""A run directory belongs to one process at a time: a lock of the operating system, which dies with its process.

Where files cannot be locked (some network drives) the run goes on with a warning. Left out: locks between machines
beyond what the file system offers; the package filelock, which empties the file that says who holds it.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import IO

from palaestra.errors import InputError, StorageError
from palaestra.foundation.files import open_to_append, remove

NAME = ".lock"
PATIENCE = 1.0
"""Seconds for a process that was just killed to be gone, with those that it started."""

_held: ContextVar[frozenset[Path]] = ContextVar("_held", default=frozenset())


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Context manager that locks a run's directory, made if absent, against other processes and threads; reentrant.

    Raises:
        InputError: another process, or another thread of this one, does; names both.
        StorageError: nothing can be written there, or the lock is a link or another file.
    """
    path = directory.resolve() / NAME
    if path in _held.get():
        yield
        return
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = open_to_append(path)
    except OSError as error:
        raise StorageError(
            f"cannot write to {directory}: {error.strerror or error}; choose another directory or make room"
        ) from error
    with file:
        try:
            _wait_for(file)
        except BlockingIOError:
            owner = _owner(file) or "another process"
            raise InputError(
                f"{directory} is in use by {owner}: wait until it ends, stop it, or choose another directory"
            ) from None
        except OSError as error:
            warnings.warn(f"{directory} cannot be locked ({error}): let nobody else write to it", stacklevel=3)
        if not re.fullmatch(r"(process .*)?", _owner(file)):
            raise StorageError(f"{path}: not a lock of Palaestra, so it is left as it is; choose another directory")
        with contextlib.suppress(OSError):  # a full disk: what is in the lock is only for people
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            file.flush()
            os.fsync(file.fileno())  # so that other machines read it while this file stays open
        _sweep(directory)
        token = _held.set(_held.get() | {path})
        try:
            yield
        finally:
            _held.reset(token)


def _owner(file: IO[str]) -> str:
    """Owner recorded in a lock file."""
    file.seek(0)
    return file.read(1000).strip()


def _sweep(directory: Path) -> None:
    """Remove temporary files of a killed process (see `foundation.files.atomic_write`)."""
    for name in (".", "turns", "messages", "tasks", "policies", "start", "checkpoints"):
        for path in (directory / name).glob(".*.tmp"):
            if re.fullmatch(r"\..+\.\d+\.tmp", path.name):
                with contextlib.suppress(OSError):
                    remove(path)


def _wait_for(file: IO[str]) -> None:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return _take(file)
        except BlockingIOError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


try:
    import fcntl

    def _take(file: IO[str]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

except ImportError:  # Windows
    import msvcrt

    def _take(file: IO[str]) -> None:
        file.seek(2**30)  # a byte that is never written, so that everybody may read who holds the lock
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except PermissionError as error:
            raise BlockingIOError(*error.args) from error
