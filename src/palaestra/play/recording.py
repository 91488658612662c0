"""From episodes to the table: rows are kept as objects only for some ten thousand turns, then as columns.

Token ids, log-probabilities, features and masks go from NumPy into Arrow without becoming Python lists. What is a fact
of the episode is stored once per episode and gathered, so repeated texts share their memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from palaestra.algebra.list_columns import list_column
from palaestra.algebra.schema import SCHEMA, SCHEMA_VERSION, VERSION_KEY, clean
from palaestra.algebra.turns import Turns
from palaestra.envs.facts import DTYPES, Facts
from palaestra.errors import StorageError
from palaestra.foundation.files import atomic_write

CHUNK_ROWS = 10_000

_NOTHING: Mapping[str, Any] = {}


@dataclass(slots=True)
class TurnRecord:
    """Data of one turn of one agent; its fields are the columns of `SCHEMA` that differ within an episode.

    error: why this turn has no action although the episode went on; the error of a failed episode stands on all rows.
    """

    agent: str | None = None
    observation: str | None = None
    messages: str | None = None
    tools: str | None = None
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
    token_versions: np.ndarray | None = None
    entropies: np.ndarray | None = None
    prefix: str | None = None
    finish: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost: float | None = None
    duration: float | None = None
    metadata: str | None = None
    error: str | None = None
    facts: Mapping[str, Any] | None = None


@dataclass(slots=True)
class EpisodeRecord:
    """Data of one episode: its turn records, and the columns of `SCHEMA` that all its rows share.

    No rows: nobody acted.
    """

    group: int
    episode: int
    seed: int
    task: str | None = None
    terminated: bool = False
    truncated: bool = False
    error: str | None = None
    rows: list[TurnRecord] = field(default_factory=list)


_SHARED = ("group", "episode", "seed", "task", "terminated", "truncated", "error")
_OWN = tuple(field.name for field in dataclasses.fields(TurnRecord))
_OF_ROW = attrgetter(*_OWN)
"""All of a row at once: rows lie far apart in memory, and one walk over them is half as dear as two dozen."""
_RAGGED = {
    "features": np.float32,
    "legal": np.bool_,
    "prompt_ids": np.int32,
    "action_ids": np.int32,
    "logprobs": np.float32,
    "token_versions": np.int32,
    "entropies": np.float32,
}


@dataclass(frozen=True, slots=True)
class Label:
    """Data of the columns that all rows of a rollout share: run, iteration, policy_version."""

    run: str | None = None
    iteration: int = 0
    policy_version: int = 0


UNLABELLED = Label()
_LABELS = tuple(field.name for field in dataclasses.fields(Label))


def schema(facts: Facts) -> dict[str, Any]:
    """Dict column -> Polars type of a rollout's table, in order: `SCHEMA`, then the env's facts."""
    return {name: column.dtype for name, column in SCHEMA.items()} | {n: DTYPES[kind] for n, kind in facts.items()}


def to_frame(episodes: Sequence[EpisodeRecord], label: Label = UNLABELLED, facts: Facts = _NOTHING) -> pl.DataFrame:
    """DataFrame of the episodes' rows in order, with every column of `schema`; one without rows becomes a row of nulls.

    >>> failed = EpisodeRecord(group=0, episode=3, seed=7, error="env: ValueError: no")
    >>> to_frame([failed])["episode", "agent", "error"].row(0)
    (3, None, 'env: ValueError: no')
    """
    parts = [episode.rows or [TurnRecord()] for episode in episodes]
    rows = [row for part in parts for row in part]
    owner = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    shared = pl.DataFrame([_series(name, list(map(attrgetter(name), episodes))) for name in _SHARED])
    shared = shared[owner] if len(rows) > len(episodes) else shared  # each has one row at least
    told = dict(zip(_OWN, zip(*map(_OF_ROW, rows), strict=True) if rows else [()] * len(_OWN), strict=True))
    columns: list[pl.Series] = []
    for name in SCHEMA:
        if name in ("terminated", "truncated") and facts.get("out") is bool:
            columns.append(pl.Series(name, _ended(episodes, name), pl.Boolean))
        elif name == "error" and any(told[name]):
            columns.append(shared[name].zip_with(shared[name].is_not_null(), _series(name, told[name])))
        elif name in _SHARED:
            columns.append(shared[name])
        elif name in _RAGGED:
            columns.append(_list_series(name, told[name]))
        elif name in _LABELS:
            columns.append(_series(name, [getattr(label, name)]).new_from_index(0, len(rows)))
        else:
            columns.append(_series(name, told[name]))
    facts_of_rows = [each or _NOTHING for each in told["facts"]] if facts else []
    for name, kind in facts.items():
        columns.append(_fact_series(name, [each.get(name) for each in facts_of_rows], DTYPES[kind]))
    return pl.DataFrame(columns)


def _ended(episodes: Sequence[EpisodeRecord], name: str) -> list[bool]:
    """Of each row how it ended for its agent: by the rules if the env's fact `out` says so, else as the episode."""
    found: list[bool] = []
    for episode in episodes:
        ended = getattr(episode, name)
        out = {row.agent for row in episode.rows if row.facts and row.facts.get("out")} if episode.truncated else ()
        by_rules = name == "terminated"
        found += [by_rules if row.agent in out else ended for row in episode.rows or [TurnRecord()]]
    return found


def _series(name: str, values: Sequence[Any]) -> pl.Series:
    dtype = SCHEMA[name].dtype
    if values.count(None) == len(values):  # half of the columns: nobody had tokens, tools, costs
        return pl.Series(name, [None], dtype=dtype).new_from_index(0, len(values))
    try:
        return pl.Series(name, values, dtype=dtype)
    except UnicodeEncodeError:  # names come from anywhere
        return pl.Series(name, [clean(value) if isinstance(value, str) else value for value in values], dtype=dtype)


def _fact_series(name: str, values: list[Any], dtype: Any) -> pl.Series:
    """Lists go through Arrow, which makes a column of them ten times as fast."""
    if not isinstance(dtype, pl.List):
        return pl.Series(name, values, dtype=dtype)
    inner = pl.Series(dtype=dtype.inner).to_arrow().type
    series = pl.from_arrow(pa.array(values, pa.large_list(inner)))
    assert isinstance(series, pl.Series)
    return series.alias(name)


def _list_series(name: str, arrays: Sequence[np.ndarray | None]) -> pl.Series:
    present = [array for array in arrays if array is not None]
    if not present:
        return pl.Series(name, [None], dtype=SCHEMA[name].dtype).new_from_index(0, len(arrays))
    lengths = np.array([0 if array is None else len(array) for array in arrays])
    missing = None if len(present) == len(arrays) else np.array([array is None for array in arrays])
    return list_column(name, np.concatenate(present, dtype=_RAGGED[name]), lengths, missing=missing)


def frames(
    episodes: Iterable[EpisodeRecord], label: Label = UNLABELLED, facts: Callable[[], Facts | None] = dict
) -> Iterator[pl.DataFrame]:
    """Generator of DataFrames of about `CHUNK_ROWS` rows, whole episodes each, from episode records.

    facts: what the env declares; None while no env could be made, and then no table is made before the end.
    """
    held: list[EpisodeRecord] = []
    rows = 0
    for episode in episodes:
        held.append(episode)
        rows += len(episode.rows) or 1
        if rows >= CHUNK_ROWS and (known := facts()) is not None:
            yield to_frame(held, label, known)
            held, rows = [], 0
    if held:
        yield to_frame(held, label, facts() or {})


def stream_parquet(path: str | Path, chunks: Iterable[pl.DataFrame]) -> Path:
    """Write tables of the same columns to one Parquet file, a row group each, whole or not at all; returns the path.

    The file is opened before the first chunk is asked for, so an unwritable place is noticed before anything is played.

    Raises:
        StorageError: the file cannot be written.
    """
    path = Path(path)
    if path.is_dir():
        raise StorageError(f"cannot write {path}: it is a directory; name a file in it")
    with atomic_write(path) as temporary, contextlib.ExitStack() as opened:
        temporary.touch()
        writer = None
        for chunk in chunks:
            table = chunk.to_arrow()
            marked = table.schema.with_metadata({VERSION_KEY: str(SCHEMA_VERSION)})
            writer = writer or opened.enter_context(pq.ParquetWriter(temporary, marked, compression="zstd"))
            writer.write_table(table.replace_schema_metadata(marked.metadata))
    return path


class Stored(Turns):
    """`Turns` table in a file that is loaded when it is first used."""

    def __init__(self, path: Path) -> None:
        object.__setattr__(self, "_path", path)
        object.__setattr__(self, "_written", _mark(path))
        object.__setattr__(self, "_cache", {})

    def __getattr__(self, name: str) -> Any:
        if name != "frame":
            raise AttributeError(f"Turns has no attribute {name!r}")
        if _mark(self._path) != self._written:
            raise StorageError(f"{self._path}: somebody has changed or removed it since it was played")
        object.__setattr__(self, "frame", Turns.load(self._path).frame)
        return self.frame


def _mark(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
