"""Which files of a folder are a batch: what no statistic of a signal may be cut by, found in the files themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from palaestra.algebra.partition import BATCH, GROUP, collectable, partition, ranges_over, wide
from palaestra.algebra.text import short
from palaestra.algebra.tree import Signal, walk
from palaestra.errors import DamagedFileError, InputError


def batches(
    files: list[Path], rows: list[int], names: list[str], signals: list[Signal], together: int
) -> tuple[list[list[Path]], bool]:
    """Files that are read together, and whether statistics are collected in passes instead.

    Raises:
        InputError: a group lies in two files, or a node ranges over more than `together` turns and needs them at once.
    """
    nodes = [node for signal in signals for node in walk(signal)]
    if any(ranges_over(node) == GROUP or node.options.get("unit") == "episode" for node in nodes):
        _check_cuts(files, names)
    if partition(*signals) != BATCH or len(files) == 1:
        return [[file] for file in files], False
    joined = _joined(files, names)
    size = dict(zip(files, rows, strict=True))
    large = max((batch for batch in joined if len(batch) > 1), key=lambda b: sum(size[f] for f in b), default=[])
    count = sum(size[file] for file in large)
    if count <= together:
        return joined, False
    for node in (node for signal in signals for node in wide(signal)):
        if not collectable(node):
            raise InputError(
                f"{short(node)} ranges over an iteration whose {count:,} turns lie in {len(large)} files, and cannot "
                f"be collected in passes; read them together (together={count}) if they fit into memory, or use a key "
                "with the group"
            )
    return [[file] for file in files], True


def _check_cuts(files: list[Path], names: list[str]) -> None:
    """No group in two files.

    Raises:
        InputError: names the group and both files.
    """
    scope = [name for name in BATCH if name in names]
    unit = next((name for name in ("group", "episode") if name in names), None)
    if unit is None or len(files) == 1:
        return
    low, high, null = (pl.col(unit).min().alias("low"), pl.col(unit).max().alias("high"), pl.col(unit).null_count())
    found = []
    for number, file in enumerate(files):
        part = _distinct_scopes(file, scope, [unit])
        columns = (low, high, (null > 0).alias("null"))
        spans = part.group_by(scope).agg(columns) if scope else part.select(columns)
        found.append(spans.with_columns(file=number))
    everywhere = pl.concat(found, how="vertical_relaxed")
    for of_scope in everywhere.partition_by(scope) if scope else [everywhere]:
        for cluster in _overlapping(of_scope):
            _name_a_cut(files, scope, unit, cluster)


def _distinct_scopes(file: Path, scope: list[str], more: list[str]) -> pl.DataFrame:
    try:
        frame = pl.read_parquet(file, columns=[*scope, *more], hive_partitioning=False, glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DamagedFileError(f"{file}: not a readable Parquet file ({str(error).splitlines()[0]})") from error
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


def _name_a_cut(files: list[Path], scope: list[str], unit: str, cluster: pl.DataFrame) -> None:
    keys, here = [*scope, unit], cluster.select(scope).head(1)
    parts = []
    for number in cluster["file"]:
        part = _distinct_scopes(files[number], scope, [unit]).unique()
        part = part.join(here, on=scope, how="semi", nulls_equal=True) if scope else part
        parts.append(part.with_columns(file=number))
    twice = (
        pl.concat(parts, how="vertical_relaxed")
        .group_by(keys)
        .agg(pl.col("file"))
        .filter(pl.col("file").list.len() > 1)
    )
    if twice.height:
        first = twice.sort(keys).row(0, named=True)
        where = ", ".join(f"{name} {first[name]}" for name in keys)
        one, other = sorted(first["file"])[:2]
        raise InputError(
            f"{where} lies in {files[one]} and in {files[other]} ({twice.height} such in these files): statistics of a "
            f"{unit} need all of its rows, so write each {unit} into one file"
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
