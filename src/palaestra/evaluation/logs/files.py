"""JSON from files that may be damaged: what parses is returned with the place where it stands, the rest is named.

A file is read up to a limit: what is larger, or never ends, is refused by name before it fills the memory.
"""

from __future__ import annotations

import contextlib
import gc
import gzip
import itertools
import json
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from palaestra.errors import InputError
from palaestra.evaluation.logs.rows import Rows

Documents = list[tuple[str, dict[str, Any]]]
"""("line 3", object); ("", object) if the object is the whole file."""

MOST_BYTES = 1 << 30
"""Of one file of text, and of one file inside a zip."""
_PART = 1 << 20
MOST_UNPACKED, MOST_RATIO, SMALL = 1 << 32, 100, 1 << 26
"""A zip may unpack to so many bytes; beyond the last number, to no more than `MOST_RATIO` times its size."""


def content(path: Path, rows: Rows) -> bytes | None:
    """Bytes of a file; None, with a problem added to a `Rows`, if it cannot be read or is too large."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        rows.problem("", error.strerror or str(error))
        return None
    if len(data) > MOST_BYTES:
        rows.problem("", f"more than {size_text(MOST_BYTES)}, the most that is read of one file; split it")
        return None
    return data


@contextlib.contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Context manager that yields the path of what a file compressed with gzip holds, and any other path as it is.

    Raises:
        InputError: it is damaged, or holds more than is read of one file.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    if not packed:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        name = path.stem if path.suffix == ".gz" else path.name
        there = Path(folder, name)
        try:
            with gzip.open(path) as file, there.open("wb") as whole:
                for count in itertools.count(1):
                    part = file.read(_PART)
                    if not part:
                        break
                    if count * _PART > MOST_BYTES:
                        raise InputError(
                            f"unpacks to more than {size_text(MOST_BYTES)}, the most that is read of one file"
                        )
                    whole.write(part)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise InputError(f"not a whole gzip file ({error})") from error
        yield there


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Context manager in which Python's garbage collection is off, which makes reading large logs faster."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def size_text(count: float) -> str:
    """A number of bytes as text with a unit: `2.77 MiB`.

    >>> size_text(3.2e9), size_text(2_900_000)
    ('3.0 GiB', '2.77 MiB')
    """
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def too_much(archive: zipfile.ZipFile, packed: int) -> str:
    """Reason, as text, not to unpack an open `ZipFile` of `packed` bytes: it declares too large sizes; else empty."""
    declared = [entry.file_size for entry in archive.infolist()]
    total, largest = sum(declared), max(declared, default=0)
    if largest > MOST_BYTES:
        return f"a file in it unpacks to {size_text(largest)}; the most that is read is {size_text(MOST_BYTES)}"
    if total > MOST_UNPACKED or total > max(SMALL, MOST_RATIO * packed):
        return f"{size_text(packed)} that unpack to {size_text(total)}: not a log, or one to be split; it is not opened"
    return ""


def documents(path: Path, rows: Rows) -> Documents:
    """List of (place, object) of a JSON file, an array or an object per line; problems are added to a `Rows`."""
    data = content(path, rows)
    if data is None:
        return []
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):  # UTF-16
        data = data.decode("utf-16", "replace").encode()
    if not data.strip():
        rows.problem("", "the file is empty")
        return []
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    filled = [line for line in lines[:50] if line.strip()]
    if len(filled) > 1 and sum(line.startswith(b"{") for line in filled) > len(filled) / 2 and len(filled[0]) > 1:
        return _by_line(lines, rows)
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        rows.problem(_place(error), f"not JSON ({_reason(error)})")
        return []
    if isinstance(value, dict):
        return [("", value)]
    if not isinstance(value, list):
        rows.problem("", f"expected objects, found {type(value).__name__}")
        return []
    found = []
    for number, each in enumerate(value):
        if isinstance(each, dict):
            found.append((f"entry {number}", each))
        else:
            rows.problem(f"entry {number}", f"expected an object, found {type(each).__name__}")
    return found


def _by_line(lines: list[bytes], rows: Rows) -> Documents:
    found = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line.decode())
        except (ValueError, RecursionError) as error:
            rows.problem(f"line {number}", f"not JSON ({_reason(error)})")
            continue
        if isinstance(value, dict):
            found.append((f"line {number}", value))
        else:
            rows.problem(f"line {number}", f"expected an object, found {type(value).__name__}")
    return found


def _place(error: Exception) -> str:
    return f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg}, column {error.colno}"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error).splitlines()[0][:120]
