"""The registry of formats: what to recognise a file by, and who reads it.

A reader of your own is one file and one registration, here or in a package that names its module under the entry point
`palaestra.plugins`:

    @READERS.register("mine")
    def mine() -> Reader:
        \"\"\"What my tool writes.\"\"\"
        return Reader(read, fits=lambda record: "my_field" in record)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from palaestra.errors import InputError
from palaestra.evaluation.logs.rows import Rows
from palaestra.foundation.registry import Registry


@dataclass(frozen=True)
class LogReader:
    """Reader of one log format: functions that recognise a file of it and that fill `Rows` from it.

    Args:
        read: fills `Rows`, or returns a table that is one already. It gets the objects of the file, or, with `sees`,
            its path.
        fits: whether an object of JSON is of this format.
        sees: whether a file is, by its path and its first 4096 bytes; for what is not JSON by lines or objects.
        order: who is asked first where several could say yes; a format that asks for little has a large one. Equals are
            asked in the order of their names, so that no plugin's installation changes what a file is taken for.
        companion: whether an object belongs to such a log and holds no episode: it is passed over without a word.
        trace: whether its files say who heard whom, and are no tables before they are read.

    Raises:
        InputError: neither `fits` nor `sees`, or both.
    """

    read: Callable[[Any, Rows], pl.DataFrame | None]
    fits: Callable[[dict[str, Any]], bool] | None = None
    sees: Callable[[Path, bytes], bool] | None = None
    order: int = 0
    companion: Callable[[dict[str, Any]], bool] | None = None
    trace: bool = False

    def __post_init__(self) -> None:
        if (self.fits is None) == (self.sees is None):
            raise InputError("a reader has `fits` (objects of JSON) or `sees` (files), one of the two")


READERS: Registry[LogReader] = Registry("reader", home=("palaestra.evaluation.logs",), example="hal")
"""Every format by the name that `format=` and `--format` take."""


def in_order() -> list[tuple[str, LogReader]]:
    """List of (name, `LogReader`) of all log formats, in the order in which they are tried."""
    made = [(name, READERS[name]()) for name in READERS]
    return sorted(made, key=lambda pair: (pair[1].order, pair[0]))
