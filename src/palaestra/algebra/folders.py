"""Signals over a folder of Parquet files, file by file: tables that no memory holds.

A file is a batch, or several files that share an iteration are, if a key of the signal ranges over one (`partition`);
rows never cross a batch. Where shards were cut by rows, a file is read with the rest of its groups. What is written is
recognised by the content of what it was made from, so a run that was killed goes on where it was, and a changed file is
done again.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from palaestra.algebra.collect import Collected
from palaestra.algebra.file_batches import Borrowed, batches
from palaestra.algebra.kernels import KERNELS, evaluate
from palaestra.algebra.parse import parse
from palaestra.algebra.partition import BATCH, partition, passes
from palaestra.algebra.schema import SCHEMA, SCHEMA_VERSION, VERSION_KEY, conform
from palaestra.algebra.tree import Signal, Value, walk
from palaestra.algebra.turns import Ragged, Turns
from palaestra.errors import DamagedFileError, InputError, PalaestraError, StorageError
from palaestra.foundation.files import atomic_write, left_behind
from palaestra.foundation.malloc import keep_freed
from palaestra.foundation.progress import Report, reporting
from palaestra.foundation.safe_path import keep_children_off_the_current_folder

KEYS = ("run", "iteration", "group", "episode", "turn", "agent")
"""Columns that a statistic may need besides those that the signal names, and that `slim` keeps."""
TOGETHER = 2_000_000
"""Turns of an iteration up to which its files are read together; beyond, its statistics are collected in passes."""
_MARK = "palaestra.apply"


class Applied(NamedTuple):
    """Result of `apply`: files and turns in all, files that were finished before, and passes over the files."""

    files: int
    turns: int
    found: int
    passes: int
    parts: tuple[str, ...]


def apply(
    columns: Mapping[str, Signal | str],
    source: str | Path,
    out: str | Path,
    *,
    workers: int = 1,
    together: int = TOGETHER,
    slim: bool = False,
    modules: Sequence[str] = (),
    progress: bool | Report = False,
) -> Applied:
    """Write each Parquet file of `source` again to `out`, with `columns` {name: signal} added; returns `Applied`.

    Each column may use those before it.

    The values are those of the signal on the whole table, to the bit; where statistics are collected in passes and
    count episodes, up to rounding unless groups ascend from file to file. They are float64, lists of them per token.

    Args:
        columns: name and signal, or its text, of each new column.
        source: a folder of Parquet files, taken in the order of their names.
        out: another folder.
        workers: processes; each holds one batch at a time.
        together: turns of an iteration up to which its files are read together if a key ranges over all of it.
        slim: write only the keys and the new columns, rows in the same order.
        modules: that register what the signals use, for other processes.
        progress: a bar on stderr, or your own report.

    Raises:
        InputError: a node needs more than fits, or `out` holds other tables.
        DamagedFileError, SchemaError: a file cannot be read; names it.
        StorageError: one cannot be written; what was finished stays.
    """
    source, out = Path(source), Path(out)
    files = _files(source, out)
    for module in modules:
        importlib.import_module(module)
    schemas = [_schema(file) for file in files]
    names = list(dict.fromkeys(name for schema in schemas for name in schema.names))
    signals = _signals(columns, names)
    _check_columns(files, schemas, signals)
    rows = [schema.rows for schema in schemas]
    parts, in_passes, borrowed = batches(files, rows, schemas[0].names, [*signals.values()], together)
    cut = len(parts) > 1 and (in_passes or partition(*signals.values()) != BATCH)
    collected = {name: Collected(signal) if cut else None for name, signal in signals.items()}
    reads = {*KEYS, *names[:1], *(name for signal in signals.values() for name in signal.needs())}
    plan = _Plan(source, out, dict(columns), names, reads, slim, tuple(modules), collected, borrowed)
    done, found = 0, 0
    with reporting(progress, "apply") as report:
        if in_passes:
            plan.context = _digest(plan, files, report)
            if all(plan.finished(file) for file in files):
                return Applied(len(files), sum(rows), len(files), 0, partition(*signals.values()))
            _collect(plan, signals, files, report)
        for finished, size in _each(plan, parts, workers):
            done, found = done + size, found + finished
            report("files", done, len(files))
    count = sum(passes(signal) for signal in signals.values()) if in_passes else 0
    return Applied(len(files), sum(rows), found, count + 1, partition(*signals.values()))


# -- what there is ----------------------------------------------------------------------------------------------------


class _Schema(NamedTuple):
    names: list[str]
    rows: int


def _files(source: Path, out: Path) -> list[Path]:
    files = sorted(source.rglob("*.parquet"))
    if not files:
        raise DamagedFileError(f"{source}: no Parquet files in this directory")
    here, there = source.resolve(), out.resolve()
    if here.is_relative_to(there) or there.is_relative_to(here):
        raise InputError(f"{out}: one folder lies in the other ({source}); give a folder of its own")
    for left in left_behind(out, "*.parquet"):  # by a run that was killed
        left.unlink(missing_ok=True)
    expected = {out / file.relative_to(source) for file in files}
    if other := sorted(set(out.rglob("*.parquet")) - expected):
        raise InputError(f"{out}: holds {other[0].relative_to(out)}, which {source} does not; give a folder of its own")
    return files


def _schema(file: Path) -> _Schema:
    with _readable(file):
        found = pq.read_metadata(file)
        return _Schema(found.schema.to_arrow_schema().names, found.num_rows)


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise DamagedFileError(f"{file}: not a readable Parquet file ({str(error).splitlines()[0]})") from error


def _signals(columns: Mapping[str, Signal | str], names: list[str]) -> dict[str, Signal]:
    known, signals = list(names), {}
    for name, signal in columns.items():
        signals[name] = parse(signal, columns=known) if isinstance(signal, str) else signal
        known.append(name)
    return signals


def _check_columns(files: list[Path], schemas: list[_Schema], signals: Mapping[str, Signal]) -> None:
    """A column that only some files have would be null in the others of one table, and is an error here."""
    matters = {*BATCH, *(name for signal in signals.values() for name in signal.needs())} - signals.keys()
    first = matters.intersection(schemas[0].names)
    for file, schema in zip(files, schemas, strict=True):
        for name in sorted(first ^ matters.intersection(schema.names)):
            lacks, has = (file, files[0]) if name in first else (files[0], file)
            raise InputError(f"{lacks}: has no column {name!r}, which {has.name} has; write the folder with one schema")


# -- doing it ---------------------------------------------------------------------------------------------------------


@dataclass
class _Plan:
    """Settings of worker processes; `columns` stay text where given as text, since parsing loads programs."""

    source: Path
    out: Path
    columns: dict[str, Signal | str]
    names: list[str]
    reads: set[str]
    slim: bool
    modules: tuple[str, ...]
    collected: dict[str, Collected | None]
    borrowed: dict[Path, list[Borrowed]] = field(default_factory=dict)
    context: str = ""
    marks: dict[Path, str] = field(default_factory=dict)

    def signals(self) -> dict[str, Signal]:
        return _signals(self.columns, self.names)

    def target(self, file: Path) -> Path:
        return self.out / file.relative_to(self.source)

    def mark(self, batch: Iterable[Path]) -> str:
        """Digest of everything that the result of a batch depends on: content, signals, version."""
        signals = [[name, signal.digest.hex()] for name, signal in self.signals().items()]
        contents = [_content(file, self.marks) for file in batch]
        text = json.dumps([version("palaestra"), signals, self.slim, self.context, contents])
        return hashlib.sha256(text.encode()).hexdigest()

    def finished(self, file: Path, batch: Sequence[Path] | None = None) -> bool:
        """Whether the result is there already."""
        target = self.target(file)
        if not target.exists():
            return False
        try:
            marks = pq.read_metadata(target).metadata or {}
        except (pa.ArrowException, OSError):
            return False
        return bool(
            marks.get(_MARK.encode(), b"").decode() == self.mark(self.made_from([file] if batch is None else batch))
        )

    def read(self, file: Path) -> Turns:
        return Turns.load(file, self.reads)

    def of_groups(self, part: Borrowed) -> Turns:
        """The rows of these groups in another file."""
        with _readable(part.file):
            rows = pl.scan_parquet(part.file, hive_partitioning=False, glob=False)
            names = [name for name in pq.read_schema(part.file).names if name in self.reads]
            typed = rows.select(names).with_columns(_as_in_schema(name) for name in part.keys.columns)
            same = typed.join(part.keys.lazy(), on=part.keys.columns, how="semi", nulls_equal=True)
            return Turns(same.collect())

    def made_from(self, batch: Sequence[Path]) -> list[Path]:
        """The files of a batch, and those of which it needs rows."""
        return [*batch, *(each.file for file in batch for each in self.borrowed.get(file, ()))]

    def add(self, part: Turns, signals: Mapping[str, Signal]) -> Turns:
        """The part with the columns of these signals."""
        for name, signal in signals.items():
            collected = self.collected[name]
            value = evaluate(part, signal)[0] if collected is None else collected.value(part)
            part = part.with_column(**{name: _series(name, value)})
        return part


def _as_in_schema(name: str) -> pl.Expr:
    """A column in the type that `Turns` gives it."""
    return pl.col(name).map_batches(lambda values: conform(values.to_frame(name))[name], SCHEMA[name].dtype)


def _content(file: Path, known: dict[Path, str]) -> str:
    if file not in known:
        with _readable(file), file.open("rb") as opened:
            known[file] = hashlib.file_digest(opened, "sha256").hexdigest()
    return known[file]


def _series(name: str, value: Value) -> pl.Series:
    """Of one type in all files, whatever each holds."""
    if isinstance(value, Ragged):
        return Ragged(value.values.astype(float), value.lengths).to_series(name)
    return pl.Series(name, value.astype(float)).fill_nan(None)


def _digest(plan: _Plan, files: list[Path], report: Report) -> str:
    whole_folder = hashlib.sha256()
    for number, file in enumerate(files):
        report("looking", number, len(files))
        whole_folder.update(_content(file, plan.marks).encode())
    return whole_folder.hexdigest()


def _collect(plan: _Plan, signals: Mapping[str, Signal], files: list[Path], report: Report) -> None:
    """Fill in the wide statistics, a column after the other, as many passes as each needs."""
    total = sum(passes(signal) for signal in signals.values())
    number = 0
    for name in signals:
        collected, before = plan.collected[name], _before(name, signals)
        while collected is not None and not collected.done:
            number += 1
            for at, file in enumerate(files):
                report(f"pass {number} of {total + 1}", at, len(files))
                with _in_file(file):
                    collected.add(plan.add(plan.read(file), before))
            collected.next_pass()


def _before(name: str, signals: Mapping[str, Signal]) -> dict[str, Signal]:
    """The new columns that this one is made from, in their order."""
    wanted, found = signals[name].needs(), {}
    earlier = [*signals][: [*signals].index(name)]
    for each in reversed(earlier):
        if each in wanted:
            found[each] = signals[each]
            wanted |= signals[each].needs()
    return {each: found[each] for each in earlier if each in found}


@contextmanager
def _in_file(*files: Path) -> Iterator[None]:
    """Errors of rows name the file."""
    try:
        yield
    except PalaestraError as error:
        if str(files[0]) in str(error):
            raise
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        raise type(error)(f"{files[0]}{more}: {error}") from error


_PLAN: list[_Plan] = []


def _start(plan: _Plan, modules: list[str]) -> None:
    for module in modules:
        importlib.import_module(module)
    _PLAN[:] = [plan]


def _start_worker(plan: _Plan, modules: list[str]) -> None:
    keep_freed()  # arrays of one file are as large as those of the next
    _start(plan, modules)


def _do(batch: list[Path]) -> tuple[int, int]:
    """Read, evaluate and write a batch; how many of its files were finished before, and how many there are."""
    plan = _PLAN[0]
    if all(plan.finished(file, batch) for file in batch):
        return len(batch), len(batch)
    with _in_file(*batch):
        parts = [plan.read(file) for file in batch]
        sizes = [len(part) for part in parts]
        needed = plan.borrowed.get(batch[0], []) if len(batch) == 1 else []
        before, after = ([plan.of_groups(each) for each in needed if each.first is first] for first in (True, False))
        parts = [*before, *parts, *after]
        table = parts[0] if len(parts) == 1 else Turns.concat(parts)
        del parts
        new = plan.add(table, plan.signals()).frame.select([*plan.columns])
        del table
        mark, start = plan.mark(plan.made_from(batch)), sum(map(len, before))
        for file, size in zip(batch, sizes, strict=True):
            _write(file, plan.target(file), new.slice(start, size), mark, plan.slim)
            start += size
    return 0, len(batch)


def _write(source: Path, target: Path, new: pl.DataFrame, mark: str, slim: bool) -> None:
    """The source's rows with these columns, a row group at a time."""
    with _readable(source), pq.ParquetFile(source) as parquet:
        schema = parquet.schema_arrow
        kept = [name for name in schema.names if name not in new.columns and (not slim or name in KEYS)]
        added = new.to_arrow()
        order = [name for name in schema.names if name in kept or name in new.columns]
        order += [name for name in new.columns if name not in order]
        fields = [schema.field(name) if name in kept else added.schema.field(name) for name in order]
        notes = {**(schema.metadata or {}), VERSION_KEY: str(SCHEMA_VERSION), _MARK: mark}
        result = pa.schema(fields, metadata=notes)
        start = 0
        with atomic_write(target) as temporary, pq.ParquetWriter(temporary, result, compression="zstd") as writer:
            for number in range(parquet.num_row_groups):
                rows = parquet.metadata.row_group(number).num_rows
                group = parquet.read_row_group(number, columns=kept)
                extra = added.slice(start, rows)
                writer.write_table(
                    pa.table([group[name] if name in kept else extra[name] for name in order], schema=result)
                )
                start += rows


def _each(plan: _Plan, batches: list[list[Path]], workers: int) -> Iterator[tuple[int, int]]:
    used = {KERNELS[node.op] for signal in plan.signals().values() for node in walk(signal) if node.op in KERNELS}
    modules = sorted({*plan.modules, *(kernel.__module__ for kernel in used)} - {"__main__"})
    if workers == 1 or len(batches) == 1:
        _start(plan, modules)
        yield from map(_do, batches)
        return
    keep_children_off_the_current_folder()
    context = get_context("spawn")  # polars has threads, which a fork would lose
    with ProcessPoolExecutor(workers, context, _start_worker, (plan, modules)) as pool:
        try:
            yield from pool.map(_do, batches)
        except BrokenProcessPool as error:
            raise StorageError(
                "apply: a worker died, out of memory perhaps; what was finished stays: the same command goes on, with "
                "fewer workers if need be"
            ) from error
