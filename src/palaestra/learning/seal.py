"""Sizes and checksums of the files that a result is read from, so that none of them changes unnoticed.

A checkpoint seals the journals and looks that were there when it was made; `result.json` seals what the summary reads.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from palaestra.errors import StorageError

Sealed = dict[str, dict[str, Any]]
"""File (relative to the directory) -> {"size", "sha256"}."""

_BLOCK = 2**20


def seal(directory: Path, patterns: Iterable[str]) -> Sealed:
    """Size and SHA-256 of the files in `directory` that match, once they are on disk.

    Raises:
        StorageError: one of them cannot be read.
    """
    found = {path for pattern in patterns for path in directory.glob(pattern)}
    return {path.relative_to(directory).as_posix(): _measured(path, sync=True) for path in sorted(found)}


def check(directory: Path, sealed: Mapping[str, Mapping[str, Any]], by: str, fix: str) -> None:
    """Every file is as it was when it was sealed; a journal (.jsonl) may have grown since.

    by: what was made with them. fix: what to do.

    Raises:
        StorageError: names the file and what is wrong with it.
    """
    for name, was in sealed.items():
        path = directory / name
        fault = _fault(path, was["size"], was["sha256"])
        if fault:
            raise StorageError(f"{path} {fault}, {by} was made with it as it was: restore it from a backup, or {fix}")


def _fault(path: Path, size: int, digest: str) -> str | None:
    if not path.is_file():
        return "is gone"
    now = path.stat().st_size
    if now < size or (now > size and path.suffix != ".jsonl"):
        return f"has {now} bytes instead of {size}"
    return None if _measured(path, size)["sha256"] == digest else "was changed"


def _measured(path: Path, size: int | None = None, *, sync: bool = False) -> dict[str, Any]:
    """Of the first `size` bytes, by default all."""
    digest, done = hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            if sync:
                os.fsync(file.fileno())
            while block := file.read(_BLOCK if size is None else min(_BLOCK, size - done)):
                digest.update(block)
                done += len(block)
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from error
    return {"size": done, "sha256": digest.hexdigest()}
