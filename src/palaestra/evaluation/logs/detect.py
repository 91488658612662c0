"""Which format a file has, by what is in it; its name decides nothing but CSV."""

from __future__ import annotations

import contextlib
import json
import zipfile
from pathlib import Path

import polars as pl

from palaestra.errors import InputError
from palaestra.evaluation.logs.files import documents, no_collection, unpacked
from palaestra.evaluation.logs.readers import READERS, in_order
from palaestra.evaluation.logs.rows import Rows

SUFFIXES = (".eval", ".json", ".jsonl", ".ndjson", ".parquet", ".csv", ".tsv", ".sqlite", ".sqlite3", ".db", ".binpb",
            ".pb")  # fmt: skip
"""What is looked at in a folder, also with `.gz` behind it; a file that is named is always looked at."""
_LOOKED_AT = 50
_HEAD = 4096
_LONGEST = 1 << 26


def read_file(path: Path, format: str | None, rows: Rows) -> pl.DataFrame | None:
    """Reads one log file of any known format into a `Rows`; returns a DataFrame only if the file is a table already.

    What is recognised as no log of episodes at all is a problem too, with `rows.foreign` set.
    """
    with contextlib.ExitStack() as stack:
        try:
            there = stack.enter_context(unpacked(path))
        except (InputError, OSError) as error:
            rows.problem("", getattr(error, "strerror", None) or str(error))
            return None
        if there != path:
            rows.file = rows.file.removesuffix(".gz")  # some readers look at the name
        stack.enter_context(no_collection())
        return _read_file(there, format, rows)


def _read_file(path: Path, format: str | None, rows: Rows) -> pl.DataFrame | None:
    if format is not None:
        reader = READERS[format]()
        return reader.read(path if reader.sees else documents(path, rows), rows)
    with path.open("rb") as file:
        head = file.read(_HEAD)
    readers = in_order()
    for _, reader in readers:
        if reader.sees and reader.sees(path, head):
            return reader.read(path, rows)
    if closed := _closed(path, head):
        rows.problem("", closed)
        return None
    found = documents(path, rows)
    heads = [record for _, record in found[:_LOOKED_AT]]
    if rows.task is not None or rows.success is not None:  # a table with names of its own
        return READERS["rows"]().read(found, rows)
    for _, reader in readers:
        if reader.fits and any(map(reader.fits, heads)):
            return reader.read(found, rows)
    if not found:
        return None
    rows.foreign = True
    if any(reader.companion and any(map(reader.companion, heads)) for _, reader in readers):
        rows.companion = True
        rows.problem("", "it holds averages: give samples_*.jsonl (--log_samples)")
    else:
        rows.problem("", f"no known log: its fields are {', '.join(list(heads[0])[:8]) or 'none'}")
    return None


def _closed(path: Path, head: bytes) -> str:
    """Why nobody opens a file; "" for text that may be JSON."""
    if head[:2] == b"PK":
        try:
            with zipfile.ZipFile(path) as archive:
                encrypted = any(entry.flag_bits & 1 for entry in archive.infolist())
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            return f"not a whole zip file ({error})"
        if encrypted:
            return "an encrypted zip: decrypt it with the tool that published it (hal-decrypt for HAL)"
        return "a zip file that is not Inspect's: unpack it"
    if head[:2] == b"\x80\x04" or path.suffix in (".pkl", ".pickle"):
        return "pickles are never opened: export it to JSON or Parquet where it was written"
    return ""


def is_trace(path: Path) -> bool:
    """Whether a file is a trace of a team, judged by its first JSON object or its first bytes.

    Raises:
        OSError: It cannot be read.
        InputError: It is damaged gzip.
    """
    with unpacked(path) as there:
        return _is_trace(there)


def _is_trace(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(_HEAD)
        file.seek(0)
        line = file.readline(_LONGEST) if head.lstrip()[:1] in (b"{", b"[") else b""
    readers = [reader for _, reader in in_order() if reader.trace]
    if any(reader.sees and reader.sees(path, head) for reader in readers):
        return True
    try:
        first = json.loads(line) if line else None
    except (ValueError, RecursionError):  # an object over several lines
        first = next((record for _, record in documents(path, Rows(str(path)))[:1]), None)
    first = first[0] if isinstance(first, list) and first else first
    return isinstance(first, dict) and any(reader.fits and reader.fits(first) for reader in readers)
