"""`Turns`: all experience as one table, a row per turn of one agent.

A thin, immutable wrapper around a polars DataFrame: a versioned schema that is checked, integer key codes that are
computed once, Parquet in and out. Everything else that one may want to do to a table is polars' business:
`turns.frame`.

Two laws hold for keys everywhere:

* a statistic never mixes training runs or iterations: every key is prefixed with `run` and `iteration` if the table has
  them, so `over=()` is "the batch";
* `episode` is a number inside its `group`, so the key `episode` is prefixed with `group` as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from palaestra.algebra.binding import BOUND
from palaestra.algebra.codes import Codes, Segments, code_column, combine, order_rows
from palaestra.algebra.columns import PROVIDERS, origin
from palaestra.algebra.list_columns import list_column
from palaestra.algebra.schema import SCHEMA, SCHEMA_VERSION, SCOPE, VERSION_KEY, Column, clean, conform, empty
from palaestra.errors import DamagedFileError, MissingColumnError, SchemaError, StorageError
from palaestra.foundation.files import atomic_write

if TYPE_CHECKING:
    from palaestra.algebra.tree import Signal


__all__ = ["PROVIDERS", "SCHEMA", "SCHEMA_VERSION", "SCOPE", "Column", "Ragged", "Turns", "clean", "empty"]


@dataclass(frozen=True)
class Ragged:
    """Data: per-token values, `values` float64[tokens] of all rows in sequence, `lengths` int64[rows]."""

    values: np.ndarray
    lengths: np.ndarray

    def to_series(self, name: str) -> pl.Series:
        """List column of the values, a list per row; NaN becomes null."""
        return list_column(name, self.values, self.lengths, nan_to_null=True)


class Evaluable:
    """Base class of `Signal`: an object with a value on each row of a table."""

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class Turns:
    """Table of played turns, checked against `SCHEMA`; from a polars, pandas or Arrow table or a mapping of columns.

    A table need not have every column of `SCHEMA`; a signal that needs one which is missing says so. Columns of other
    names are kept as they are.

    Raises:
        SchemaError: a known column has a type that cannot be converted without loss.

    >>> Turns({"group": [0, 0], "episode": [0, 1], "reward": [1, 0]}).columns
    ['group', 'episode', 'reward']
    """

    frame: pl.DataFrame
    _cache: dict[Any, Any] = field(default_factory=dict, repr=False)

    def __init__(self, data: Any, *, _cache: dict[Any, Any] | None = None) -> None:
        object.__setattr__(self, "frame", conform(_to_frame(data)))
        object.__setattr__(self, "_cache", _cache or {})

    # -- what it holds ------------------------------------------------------------------------------------------------

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return self.frame.columns

    def __len__(self) -> int:
        return self.frame.height

    def _repr_html_(self) -> str:
        """For notebooks: how much there is, and the first rows as polars shows them, escaped."""
        return f"<p>{len(self):,} turns</p>{self.frame.head(10)._repr_html_()}"

    def __getitem__(self, name: str) -> pl.Series:
        return self.frame[self._require(name)]

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Lets DuckDB, pandas, pyarrow and polars take the table as it is."""
        return self.frame.__arrow_c_stream__(requested_schema)

    def _require(self, name: str, why: str = "") -> str:
        if name not in self.frame.columns:
            column = SCHEMA.get(name)
            known = f" ({column.meaning}); {column.remedy}" if column else None
            raise MissingColumnError(f"{why}column {name!r} is missing{origin(name, self.frame.columns, known)}")
        return name

    # -- keys ---------------------------------------------------------------------------------------------------------

    def key_columns(self, keys: Iterable[str]) -> tuple[str, ...]:
        """The columns that the keys stand for, scope included.

        >>> Turns({"iteration": [0], "group": [0], "episode": [0]}).key_columns(["episode"])
        ('iteration', 'group', 'episode')
        """
        columns = [name for name in SCOPE if name in self.frame.columns]
        for key in keys:
            if key == "episode" and "group" in self.frame.columns:
                columns.append("group")
            columns.append(self._require(key, f"key {key!r}: "))
        return tuple(dict.fromkeys(columns))

    def codes(self, *keys: str) -> Codes:
        """Dense integer codes of a key, cached. No key means the batch; the key `row` makes every row its own."""
        if "row" in keys:
            return Codes(np.arange(len(self)), len(self))
        return self._codes_of(self.key_columns(keys))

    def _codes_of(self, columns: tuple[str, ...]) -> Codes:
        if columns not in self._cache:
            if len(columns) > 1:
                known = next(n for n in range(len(columns) - 1, 0, -1) if n == 1 or columns[:n] in self._cache)
                codes = combine(self._codes_of(columns[:known]), *(self._codes_of((c,)) for c in columns[known:]))
            elif columns:
                codes = code_column(self.frame[columns[0]])
            else:
                codes = Codes(np.zeros(len(self), np.int64), min(len(self), 1))
            self._cache[columns] = codes
        found: Codes = self._cache[columns]
        return found

    def segments(self, *keys: str) -> Segments:
        """Rows by key in the order of play, cached: by `turn`; those of one turn by the name of the agent.

        Only what neither tells apart stands as it does in the table.
        """
        cached = ("segments", *self.key_columns(k for k in keys if k != "row"), "row" in keys)
        if cached not in self._cache:
            self._cache[cached] = self.ordered(self.codes(*keys), within_turn="turn" in keys)
        found: Segments = self._cache[cached]
        return found

    def ordered(self, codes: Codes, *, within_turn: bool = False) -> Segments:
        """Rows of a key in the order of play. within_turn: the key has no more than one turn, walked agent by agent."""
        turn = self.frame["turn"].to_numpy() if "turn" in self.frame.columns else None
        segments = order_rows(codes, turn, self._seats)
        return segments._replace(moments=None) if within_turn else segments

    def _seats(self) -> np.ndarray:
        """int64[rows]: the place of the row's agent in the order of names."""
        if "agent" not in self.frame.columns:
            return np.zeros(len(self), np.int64)
        codes = self._codes_of(("agent",))
        first = np.zeros(codes.size, np.int64)
        first[codes.ids] = np.arange(len(codes.ids))
        names = self.frame["agent"].gather(first).cast(pl.String).fill_null("")
        return np.asarray(names.rank("ordinal").to_numpy().astype(np.int64)[codes.ids])

    def broken_prefixes(self) -> np.ndarray:
        """bool[rows]: the row's prompt does not extend the same agent's previous prompt and action in its episode.

        True for every later turn of a policy that is shown a fresh prompt each turn; then nothing learned from the
        concatenated history would be what was sampled.
        """
        segments = self.segments("episode", "agent")
        order = np.arange(len(self)) if segments.order is None else segments.order
        prompts, actions = self["prompt_ids"].to_list(), self["action_ids"].to_list()
        broken = np.zeros(len(self), bool)
        starts = set(segments.starts.tolist())
        for position, row in enumerate(order):
            if position in starts or prompts[row] is None:
                continue
            before = order[position - 1]
            seen = (prompts[before] or []) + (actions[before] or [])
            broken[row] = prompts[row][: len(seen)] != seen
        return broken

    # -- new tables from old ------------------------------------------------------------------------------------------

    def with_column(self, **columns: Signal | pl.Expr | pl.Series | np.ndarray | Ragged | Sequence[Any]) -> Turns:
        """A table with these columns added or replaced. Signals share what they have in common; NaN becomes null.

        >>> from palaestra.algebra.signals import col
        >>> Turns({"reward": [1.0, 3.0]}).with_column(double=2 * col("reward"))["double"].to_list()
        [2.0, 6.0]
        """
        signals = {name: value for name, value in columns.items() if isinstance(value, Evaluable)}
        evaluated = BOUND["evaluate"](self, *signals.values())
        values: dict[str, Any] = dict(columns) | dict(zip(signals, evaluated, strict=True))
        new = []
        for name, value in values.items():
            if isinstance(value, pl.Expr):
                new.append(self.frame.with_columns(value.alias(name))[name])
            elif isinstance(value, Ragged):
                new.append(value.to_series(name))
            elif isinstance(value, np.ndarray) and value.dtype.kind == "f":
                new.append(pl.Series(name, value, nan_to_null=True))
            else:
                new.append(pl.Series(name, value))
            if not isinstance(value, pl.Expr) and len(new[-1]) != len(self):
                raise SchemaError(f"column {name!r} has {len(new[-1])} values for {len(self)} rows")
        cache = {} if "turn" in columns else {k: v for k, v in self._cache.items() if not set(k) & set(columns)}
        return Turns(self.frame.with_columns(new), _cache=cache)

    def filter(self, condition: Signal | pl.Expr) -> Turns:
        """The rows where the condition holds (missing counts as no)."""
        if not isinstance(condition, Evaluable):
            return Turns(self.frame.filter(condition))
        mask = BOUND["evaluate"](self, condition)[0]
        if isinstance(mask, Ragged):
            raise SchemaError(f"filter needs one value per turn, {condition} has one per token; wrap it in per_turn()")
        return Turns(self.frame.filter(pl.Series(np.nan_to_num(mask.astype(float)) != 0)))

    def to_preferences(
        self, by: str | Signal = "reward", *, which: Literal["best_worst", "all"] = "best_worst", gap: float = 0.0
    ) -> pl.DataFrame:
        """Preference pairs in TRL's columns `prompt, chosen, rejected`; see `algebra.preferences.to_preferences`."""
        pairs: pl.DataFrame = BOUND["to_preferences"](self, by, which=which, gap=gap)
        return pairs

    def to_sft(self, where: Signal | pl.Expr | None = None) -> pl.DataFrame:
        """Rows `prompt, completion` for supervised fine-tuning, as TRL's; see `algebra.preferences.to_sft`."""
        rows: pl.DataFrame = BOUND["to_sft"](self, where)
        return rows

    @staticmethod
    def concat(tables: Iterable[Turns | pl.DataFrame]) -> Turns:
        """One table, or frame, below the other; a column that one of them lacks is null there."""
        frames = [t.frame if isinstance(t, Turns) else t for t in tables]
        try:
            return Turns(pl.concat(frames, how="diagonal_relaxed") if frames else empty())
        except pl.exceptions.PolarsError as error:
            raise SchemaError(f"tables that do not fit together: {error}; rename or cast the column first") from error

    # -- files --------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Write one Parquet file (zstd), whole or not at all.

        Raises:
            StorageError: the file cannot be written.
        """
        path = Path(path)
        try:
            with atomic_write(path) as temporary:
                self.frame.write_parquet(temporary, compression="zstd", metadata={VERSION_KEY: str(SCHEMA_VERSION)})
        except pl.exceptions.PolarsError as error:
            raise StorageError(f"cannot write {path}: {error}") from error
        return path

    @staticmethod
    def load(path: str | Path, columns: Iterable[str] | None = None) -> Turns:
        """Read a Parquet file, or every Parquet file below a directory. columns: those of them that are there.

        Raises:
            SchemaError: a file was written by another version of the schema, or a column has a wrong type.
            DamagedFileError: a file is missing or damaged.
        """
        wanted = None if columns is None else set(columns)
        return Turns.concat(_load_file(file, wanted) for file in _files(path))

    @staticmethod
    def columns_of(path: str | Path) -> list[str]:
        """Names of the columns that `load` would give; only the files' schemas are read.

        Raises:
            DamagedFileError: a file is missing or damaged.
        """
        found: dict[str, None] = {}
        for file in _files(path):
            with _readable(file):
                found |= dict.fromkeys(_names(file))
        return [*found]


def _files(path: str | Path) -> list[Path]:
    path = Path(path)
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise DamagedFileError(f"{path}: no Parquet files in this directory")
    return files


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise DamagedFileError(f"{path}: no such file") from error
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise DamagedFileError(f"{path}: not a readable Parquet file ({str(error).splitlines()[0]})") from error


def _names(path: Path) -> list[str]:
    return pl.scan_parquet(path, hive_partitioning=False, glob=False).collect_schema().names()


def _load_file(path: Path, wanted: set[str] | None) -> Turns:
    with _readable(path):
        version = pl.read_parquet_metadata(path).get(VERSION_KEY)
        names = None if wanted is None else [name for name in _names(path) if name in wanted]
        frame = pl.read_parquet(path, columns=names, hive_partitioning=False, glob=False)
    if version not in (None, str(SCHEMA_VERSION)):
        raise SchemaError(
            f"{path}: written with schema version {version}, this release reads version {SCHEMA_VERSION}; "
            "load it with the release that wrote it, or write its columns again without the version mark"
        )
    try:
        return Turns(frame)
    except SchemaError as error:
        raise SchemaError(f"{path}: {error}") from error


def _to_frame(data: Any) -> pl.DataFrame:
    if isinstance(data, Turns):
        return data.frame
    if isinstance(data, pl.DataFrame):
        return data
    if isinstance(data, pl.LazyFrame):
        return data.collect()
    try:
        if isinstance(data, Mapping | Sequence) and not isinstance(data, str | bytes):
            return pl.DataFrame(data, strict=False, infer_schema_length=None)  # a late row may have other keys or types
        if hasattr(data, "__arrow_c_stream__"):
            return pl.DataFrame(data)
        if hasattr(data, "__dataframe__"):
            return pl.from_dataframe(data)
    except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
        said = str(error).partition("\n")[0]
        raise SchemaError(f"a table cannot be made of {type(data).__name__}: {said}") from error
    raise SchemaError(f"a table cannot be made of {type(data).__name__}: give a DataFrame, an Arrow table or columns")
