"""From episodes to the table: rows are kept as objects only for some ten thousand turns, then as columns.

Token ids, log-probabilities, features and masks go from NumPy into Arrow without becoming Python lists. What is a fact
of the episode is stored once per episode and gathered, so repeated texts share their memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from palaestra.algebra.files import whole
from palaestra.algebra.turns import _VERSION_KEY, SCHEMA, SCHEMA_VERSION, empty
from palaestra.errors import StorageError

CHUNK_ROWS = 10_000


@dataclass(slots=True)
class Row:
    """One turn of one agent; the fields are the columns of `SCHEMA` that differ between the rows of an episode."""

    agent: str | None = None
    observation: str | None = None
    state: int | None = None
    features: np.ndarray | None = None
    legal: np.ndarray | None = None
    turn: int = 0
    policy: str | None = None
    action: str | None = None
    valid: bool | None = None
    reward: float | None = None
    success: bool | None = None
    prompt_ids: np.ndarray | None = None
    action_ids: np.ndarray | None = None
    logprobs: np.ndarray | None = None
    entropies: np.ndarray | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost: float | None = None
    duration: float | None = None
    metadata: str | None = None


@dataclass(slots=True)
class Episode:
    """One play-through; the fields are the columns of `SCHEMA` that all of its rows share. No rows: nobody acted."""

    group: int
    episode: int
    seed: int
    task: str | None = None
    terminated: bool = False
    truncated: bool = False
    error: str | None = None
    rows: list[Row] = field(default_factory=list)


_SHARED = ("group", "episode", "seed", "task", "terminated", "truncated", "error")
_RAGGED = {
    "features": np.float32,
    "legal": np.bool_,
    "prompt_ids": np.int32,
    "action_ids": np.int32,
    "logprobs": np.float32,
    "entropies": np.float32,
}


def to_frame(episodes: Sequence[Episode], *, run: str | None = None, iteration: int = 0) -> pl.DataFrame:
    """The episodes' rows in order, with every column of `SCHEMA`; an episode without rows becomes one row of nulls.

    >>> to_frame([Episode(group=0, episode=3, seed=7, error="env: ValueError: no")])["episode", "agent", "error"].row(0)
    (3, None, 'env: ValueError: no')
    """
    parts = [episode.rows or [Row()] for episode in episodes]
    rows = [row for part in parts for row in part]
    owner = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    shared = pl.DataFrame([_series(name, episodes) for name in _SHARED])[owner]
    columns: list[pl.Series] = []
    for name, column in SCHEMA.items():
        if name in _SHARED:
            columns.append(shared[name])
        elif name in _RAGGED:
            columns.append(_list_series(name, list(map(attrgetter(name), rows))))
        elif name in ("run", "iteration"):
            value = run if name == "run" else iteration
            columns.append(pl.Series(name, [value], dtype=column.dtype).new_from_index(0, len(rows)))
        else:
            columns.append(_series(name, rows))
    return pl.DataFrame(columns)


def _series(name: str, records: Sequence[Any]) -> pl.Series:
    return pl.Series(name, list(map(attrgetter(name), records)), dtype=SCHEMA[name].dtype)


def _list_series(name: str, arrays: list[np.ndarray | None]) -> pl.Series:
    present = [array for array in arrays if array is not None]
    if not present:
        return pl.Series(name, [None], dtype=SCHEMA[name].dtype).new_from_index(0, len(arrays))
    offsets = np.zeros(len(arrays) + 1, np.int64)
    np.cumsum([0 if array is None else len(array) for array in arrays], out=offsets[1:])
    missing = None if len(present) == len(arrays) else pa.array([array is None for array in arrays])
    values = pa.array(np.concatenate(present, dtype=_RAGGED[name]))
    lists = pa.LargeListArray.from_arrays(pa.array(offsets), values, mask=missing)
    series = pl.from_arrow(lists)
    assert isinstance(series, pl.Series)
    return series.alias(name)


def frames(episodes: Iterable[Episode], *, run: str | None = None, iteration: int = 0) -> Iterator[pl.DataFrame]:
    """Tables of about `CHUNK_ROWS` rows, whole episodes in each."""
    held: list[Episode] = []
    rows = 0
    for episode in episodes:
        held.append(episode)
        rows += len(episode.rows) or 1
        if rows >= CHUNK_ROWS:
            yield to_frame(held, run=run, iteration=iteration)
            held, rows = [], 0
    if held:
        yield to_frame(held, run=run, iteration=iteration)


def stream_parquet(path: str | Path, chunks: Iterable[pl.DataFrame]) -> Path:
    """Write chunks that have the columns of `SCHEMA` to one Parquet file, a row group each; whole or not at all.

    The file is opened before the first chunk is asked for, so an unwritable place is noticed before anything is played.

    Raises:
        StorageError: the file cannot be written.
    """
    path = Path(path)
    if path.is_dir():
        raise StorageError(f"cannot write {path}: it is a directory; name a file in it")
    schema = empty().to_arrow().schema.with_metadata({_VERSION_KEY: str(SCHEMA_VERSION)})
    with whole(path) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for chunk in chunks:
            writer.write_table(chunk.to_arrow().replace_schema_metadata(schema.metadata))
    return path
