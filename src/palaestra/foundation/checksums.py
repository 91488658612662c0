"""Checksums of the files that a result is read from, so that none of them changes unnoticed.

A checkpoint has those of the journals and periodic evaluations that were there when it was made, `result.json` those of
what the summary reads, `team.json` those of the policies, and `summary.json` its own.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from palaestra.errors import StorageError

Checksums = dict[str, dict[str, Any]]
"""File (relative to the directory) -> {"size", "sha256"}."""

_BLOCK = 2**20


def checksums(directory: Path, patterns: Iterable[str]) -> Checksums:
    """Dict name -> size and SHA-256 of files in `directory` that match glob patterns; it syncs them to disk first.

    Raises:
        StorageError: one of them cannot be read.
    """
    found = {path for pattern in patterns for path in directory.glob(pattern) if path.is_file()}
    return {path.relative_to(directory).as_posix(): _measured(path, sync=True) for path in sorted(found)}


def check(directory: Path, sealed: Mapping[str, Mapping[str, Any]], by: str, fix: str) -> None:
    """Raise StorageError, with texts `by`, `fix`, if a file differs from `sealed` (of `checksums`); .jsonl may grow.

    Args:
        directory: that the names are relative to.
        sealed: what `checksums` returned.
        by: what was made with the files.
        fix: what to do.

    Raises:
        StorageError: names the file and what is wrong with it.
    """
    for name, was in sealed.items():
        path = directory / name
        fault = _fault(path, was["size"], was["sha256"])
        if fault:
            raise StorageError(f"{path} {fault}, {by} was made with it as it was: restore it from a backup, or {fix}")


def signed(data: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a dict `data` (JSON object) with its own SHA-256 added under "checksum"."""
    return {**data, "checksum": digest(data)}


def check_signed(data: Mapping[str, Any], path: Path, fix: str) -> None:
    """Raise StorageError, naming `path`, `fix`, if a dict made by `signed` was changed; without a checksum it passes.

    Raises:
        StorageError: it was changed; names the file and the fix.
    """
    if "checksum" in data and data["checksum"] != digest(data):
        raise StorageError(f"{path} was changed after it was written: restore it from a backup, or {fix}")


def digest(data: Mapping[str, Any]) -> str:
    """SHA-256 of a dict (JSON object) without its field "checksum", in hexadecimal digits."""
    rest = {name: value for name, value in data.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, ensure_ascii=False).encode(errors="replace")).hexdigest()


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
