"""Groups the files of a folder into batches so that no statistic of a signal is cut.

Shards that were cut by rows share a group at their ends. Such a file is read with the rows of its groups that lie in
other files (`Borrowed`), so memory holds a file and its cut groups and never the folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from palaestra.algebra.partition import BATCH, GROUP, collectable, iteration_nodes, partition, ranges_over
from palaestra.algebra.text import short
from palaestra.algebra.tree import Signal, walk
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.foundation.scalars import float_or_zero


class Borrowed(NamedTuple):
    """Data: rows of another file, of groups that are cut, which statistics of a file need.

    keys: of the cut groups. first: they stand before its own.
    """

    file: Path
    keys: pl.DataFrame
    first: bool


class Batches(NamedTuple):
    """Data: plan by which the Parquet files of a folder are read: in batches, or in several passes.

    Attributes:
        parts: files that are read together.
        in_passes: whether statistics are collected in passes over the files instead.
        borrowed: by file, what it needs of other files, in their order.
    """

    parts: list[list[Path]]
    in_passes: bool
    borrowed: dict[Path, list[Borrowed]]


def batches(files: list[Path], rows: list[int], names: list[str], signals: list[Signal], together: int) -> Batches:
    """`Batches`, a plan for reading `files` so that no group that signals need is cut; at most `together` turns each.

    Groups of turns are meant.

    Raises:
        InputError: cut groups have more than `together` turns, or are collected in passes; or a node ranges over more
            than `together` turns and needs them at once.
    """
    nodes = [node for signal in signals for node in walk(signal)]
    grouped = any(ranges_over(node) == GROUP or node.options.get("unit") == "episode" for node in nodes)
    wide_keys = partition(*signals) == BATCH
    cut = _cuts(files, names) if grouped and len(files) > 1 else None
    if not wide_keys or len(files) == 1:
        borrowed = {} if cut is None else _borrowed(files, cut, together)
        return Batches([[file] for file in files], False, borrowed)
    joined = _joined(files, names)
    size = dict(zip(files, rows, strict=True))
    large = max((batch for batch in joined if len(batch) > 1), key=lambda b: sum(size[f] for f in b), default=[])
    count = sum(size[file] for file in large)
    if count <= together:  # files that share a group share its iteration
        return Batches(joined, False, {})
    if cut is not None:
        raise InputError(_cut_text(files, cut, together))
    for node in (node for signal in signals for node in iteration_nodes(signal)):
        if not collectable(node):
            raise InputError(
                f"{short(node)} ranges over an iteration whose {count:,} turns lie in {len(large)} files, and cannot "
                f"be collected in passes; read them together (together={count}) if they fit into memory, or use a key "
                "with the group"
            )
    return Batches([[file] for file in files], True, {})


def _cuts(files: list[Path], names: list[str]) -> pl.DataFrame | None:
    """Groups that lie in several files: their keys, `file` (its number) and `count` (rows there); None without any."""
    scope = [name for name in BATCH if name in names]
    unit = next((name for name in ("group", "episode") if name in names), None)
    if unit is None:
        return None
    low, high, null = (pl.col(unit).min().alias("low"), pl.col(unit).max().alias("high"), pl.col(unit).null_count())
    found = []
    for number, file in enumerate(files):
        part = _distinct_scopes(file, scope, [unit])
        columns = (low, high, (null > 0).alias("null"))
        spans = part.group_by(scope).agg(columns) if scope else part.select(columns)
        found.append(spans.with_columns(file=number))
    everywhere = pl.concat(found, how="vertical_relaxed")
    cut = [
        twice
        for of_scope in (everywhere.partition_by(scope) if scope else [everywhere])
        for cluster in _overlapping(of_scope)
        if (twice := _shared_groups(files, scope, unit, cluster)).height
    ]
    return pl.concat(cut, how="vertical_relaxed") if cut else None


def _distinct_scopes(file: Path, scope: list[str], more: list[str]) -> pl.DataFrame:
    frame = Turns.load(file, [*scope, *more]).frame.select(*scope, *more)  # types differ from file to file
    changes = pl.any_horizontal(pl.col(*scope, *more).ne_missing(pl.col(*scope, *more).shift(1)))
    return frame.filter(changes | (pl.int_range(pl.len()) == 0))  # rows of a group mostly stand together


def _overlapping(spans: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Spans of one scope that share more than an end with others."""
    if int(spans["null"].sum()) > 1 or not spans["high"].dtype.is_numeric():
        yield spans
        return
    spans = spans.sort("low", nulls_last=True)
    reach = spans["high"].cum_max().shift(1)
    fresh = (spans["low"] > reach).fill_null(True)
    for cluster in spans.with_columns(cluster=fresh.cum_sum()).partition_by("cluster", include_key=False):
        if cluster.height > 1:
            yield cluster


def _shared_groups(files: list[Path], scope: list[str], unit: str, cluster: pl.DataFrame) -> pl.DataFrame:
    keys, here = [*scope, unit], cluster.select(scope).head(1)
    parts = []
    for number in cluster["file"]:
        part = Turns.load(files[number], keys).frame.select(keys)
        part = part.join(here, on=scope, how="semi", nulls_equal=True) if scope else part
        parts.append(part.group_by(keys).agg(count=pl.len()).with_columns(file=pl.lit(number, pl.Int64)))
    every = pl.concat(parts, how="vertical_relaxed")
    return every.filter(pl.len().over(keys) > 1)


def _borrowed(files: list[Path], cut: pl.DataFrame, together: int) -> dict[Path, list[Borrowed]]:
    """Rows that each file needs of the others.

    Raises:
        InputError: that is more than `together` turns for a file.
    """
    keys = [name for name in cut.columns if name not in ("file", "count")]
    pairs = cut.join(cut, on=keys, nulls_equal=True, suffix="_other").filter(pl.col("file") != pl.col("file_other"))
    if float_or_zero(pairs.group_by("file").agg(pl.col("count_other").sum())["count_other"].max()) > together:
        raise InputError(_cut_text(files, cut, together))
    found: dict[Path, list[Borrowed]] = {}
    for (number, other), rows in pairs.sort("file", "file_other").group_by("file", "file_other", maintain_order=True):
        mine = found.setdefault(files[number], [])
        mine.append(Borrowed(files[other], rows.select(keys), other < number))
    return found


def _cut_text(files: list[Path], cut: pl.DataFrame, together: int) -> str:
    """Names a group that is cut, two of its files and the cure."""
    keys = [name for name in cut.columns if name not in ("file", "count")]
    first = cut.sort(*keys, "file").head(2)
    where = ", ".join(f"{name} {first[name][0]}" for name in keys)
    one, other = first["file"]
    return (
        f"{where} lies in {files[one]} and in {files[other]} ({cut.select(keys).n_unique()} such), and the statistics "
        f"need more than together={together:,} turns of other files at once: raise it if they fit into memory, or sort "
        f"the folder by {', '.join(keys)}, so that a {keys[-1]} lies in one file or two neighbours"
    )


def _joined(files: list[Path], names: list[str]) -> list[list[Path]]:
    """Files by what iterations they share."""
    scope = [name for name in BATCH if name in names]
    owner = list(range(len(files)))

    def root(number: int) -> int:
        while owner[number] != number:
            number = owner[number]
        return number

    first: dict[tuple[Any, ...], int] = {}
    for number, file in enumerate(files):
        for key in _distinct_scopes(file, scope, []).unique().rows() if scope else [()]:
            one, other = sorted((root(first.setdefault(key, number)), root(number)))
            owner[other] = one
    batches: dict[int, list[Path]] = {}
    for number, file in enumerate(files):
        batches.setdefault(root(number), []).append(file)
    return [*batches.values()]
