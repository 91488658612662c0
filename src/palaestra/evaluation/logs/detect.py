"""Which format a file has, by what is in it; its name decides nothing but CSV."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from palaestra.evaluation.logs import (
    agencybench,
    agentsnet,
    chat,
    claw_eval,
    hal,
    inspect_ai,
    lm_eval,
    marketplace,
    tables,
    verl,
)
from palaestra.evaluation.logs.files import Documents, documents
from palaestra.evaluation.logs.rows import Rows

JSON: dict[str, tuple[Callable[[dict[str, Any]], bool], Callable[[Documents, Rows], pl.DataFrame | None]]] = {
    "lm-eval": (lm_eval.fits, lm_eval.read),
    "hal": (hal.fits, hal.read),
    "agencybench": (agencybench.fits, agencybench.read),
    "agentsnet": (agentsnet.fits, agentsnet.read),
    "claw-eval": (claw_eval.fits, claw_eval.read),
    "verl": (verl.fits, verl.read),
    "chat": (chat.fits, chat.read),
    "rows": (tables.fits, tables.read_records),
}
"""Formats that are objects in JSON: what to recognise one by, and who reads it. The first that fits is taken."""

BINARY: dict[str, Callable[[Path, Rows], pl.DataFrame | None]] = {
    "inspect": inspect_ai.read,  # type: ignore[dict-item]
    "marketplace": marketplace.read,  # type: ignore[dict-item]
    "parquet": tables.read_parquet,
    "csv": tables.read_csv,
}
"""Formats that are read from the file itself."""

FORMATS = (*BINARY, *JSON)
SUFFIXES = (".eval", ".json", ".jsonl", ".ndjson", ".parquet", ".csv", ".sqlite", ".sqlite3", ".db")
"""What is looked at in a folder; a file that is named is always looked at."""
_LOOKED_AT = 50


def read_file(path: Path, form: str | None, rows: Rows, *, in_folder: bool = False) -> pl.DataFrame | None:
    """Read one file into `rows`, or return its table if it is one already.

    in_folder: a file that is recognised as no log of episodes is passed over in silence.
    """
    form = form or _binary(path, rows)
    if form is None or form == "":
        if form == "":
            return None
        found = documents(path, rows)
        heads = [record for _, record in found[:_LOOKED_AT]]
        form = next((name for name, (fits, _) in JSON.items() if any(map(fits, heads))), None)
        if form is None:
            if found and not in_folder:
                results = any(map(lm_eval.is_results, heads))
                hint = "; it holds averages: give samples_*.jsonl (--log_samples)" if results else ""
                rows.problem("", f"no known log: its fields are {', '.join(list(heads[0])[:8])}{hint}")
            return None
        return JSON[form][1](found, rows)
    if form in BINARY:
        return BINARY[form](path, rows)
    return JSON[form][1](documents(path, rows), rows)


def _binary(path: Path, rows: Rows) -> str | None:
    """A binary format, None for text that may be JSON, "" if the file was named as a problem."""
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError as error:
        rows.problem("", error.strerror or str(error))
        return ""
    if head[:4] == b"PAR1":
        return "parquet"
    if head[:16] == b"SQLite format 3\0":
        return "marketplace"
    if head[:2] == b"PK":
        return _zip(path, rows)
    if head.lstrip()[:1] == b"{" and all(word in head for word in (b'"version"', b'"status"', b'"eval"')):
        return "inspect"
    if path.suffix == ".csv":
        return "csv"
    if path.suffix == ".parquet":
        return "parquet"  # damaged at its very beginning
    if head[:2] == b"\x80\x04" or path.suffix in (".pkl", ".pickle", ".gz"):
        rows.problem("", "pickles are never opened: export it to JSON or Parquet where it was written")
        return ""
    return None


def _zip(path: Path, rows: Rows) -> str:
    """Inspect's logs are zips; others are not read (HAL publishes its traces in encrypted ones)."""
    try:
        with zipfile.ZipFile(path) as archive:
            encrypted = any(entry.flag_bits & 1 for entry in archive.infolist())
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        rows.problem("", f"not a whole zip file ({error})")
        return ""
    if encrypted:
        rows.problem("", "an encrypted zip: decrypt it with the tool that published it (hal-decrypt for HAL)")
        return ""
    if any(name.startswith(("samples/", "_journal/", "header.json")) for name in names):
        return "inspect"
    rows.problem("", "a zip file that is not Inspect's: unpack it")
    return ""
