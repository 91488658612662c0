"""Keys as dense integers: what makes a statistic over any key a matter of counting."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from palaestra.errors import SchemaError


class Codes(NamedTuple):
    """Data: a key as dense integers, `ids` int64[rows] in [0, size), the number of different keys."""

    ids: np.ndarray
    size: int


class Segments(NamedTuple):
    """Data: rows of each key in the order of play: `order[starts[k] : starts[k] + lengths[k]]` are those of segment k.

    `order` is None if the table already is in that order. `moments`: number of the turn that each place in the order
    belongs to, int64[rows], where rows of a segment share turns (agents that act at once); None if none do.
    """

    order: np.ndarray | None
    starts: np.ndarray
    lengths: np.ndarray
    moments: np.ndarray | None = None


def code_column(series: pl.Series) -> Codes:
    """`Codes` of a polars column that is used as a key: rows of equal value get equal codes."""
    if series.dtype in (pl.Categorical, pl.Enum):
        series = series.to_physical()
    if series.dtype.is_integer() and series.dtype != pl.UInt64 and not series.null_count():
        return densify(series.to_numpy().astype(np.int64))
    return code_array(series.to_numpy() if series.dtype.is_float() else series.to_arrow())


def code_array(values: pa.Array | pa.ChunkedArray | np.ndarray) -> Codes:
    """`Codes` of a key column (Arrow or NumPy array), by first appearance; missing values get a code of their own."""
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        values = values + 0.0  # -0 and 0 are one key
    array = pl.Series(values).to_arrow() if isinstance(values, np.ndarray) else values  # pa.array imports pandas
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    try:
        encoded = array.dictionary_encode(null_encoding="encode")
    except pa.ArrowNotImplementedError as error:
        raise SchemaError(f"a column of {array.type} cannot be a key; use numbers, text or truth values") from error
    return Codes(pl.Series(encoded.indices).to_numpy().astype(np.int64), len(encoded.dictionary))


def densify(values: np.ndarray, size: int | None = None) -> Codes:
    """`Codes` of int64 values: by counting if their range is small, else by sorting. size: all are in [0, size)."""
    if not len(values):
        return Codes(values, 0)
    low, span = (0, size) if size is not None else _range(values)
    if span > 4 * len(values) + 1024:
        return _by_sorting(values - low, span) if span < 2**63 else _by_sorting(values, span)
    shifted = values - low
    used = np.zeros(span, bool)
    used[shifted] = True
    size = int(used.sum())
    return Codes(shifted if size == span else (np.cumsum(used) - 1)[shifted], size)


def _range(values: np.ndarray) -> tuple[int, int]:
    """The least value, and how many integers there are from it to the largest; Python's integers do not overflow."""
    low = int(values.min())
    return low, int(values.max()) - low + 1


def _by_sorting(values: np.ndarray, span: int) -> Codes:
    order, ordered, bits = None, values, len(values).bit_length()
    if (values[1:] < values[:-1]).any():
        if span.bit_length() + bits < 64:  # value and place in one number: sorting it is quicker than an argsort
            ordered = (values << bits) | np.arange(len(values))
            ordered.sort()
            order = ordered & ((1 << bits) - 1)
            ordered >>= bits
        else:
            order = np.argsort(values)
            ordered = values[order]
    new = np.ones(len(values), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    ranks = np.cumsum(new) - 1
    if order is None:
        return Codes(ranks, int(ranks[-1]) + 1)
    ids = np.empty_like(ranks)
    ids[order] = ranks
    return Codes(ids, int(ranks[-1]) + 1)


def combine(*parts: Codes) -> Codes:
    """`Codes` of several keys, each `Codes`, taken together: rows share a code if they agree in every part."""
    parts = tuple(part for part in parts if part.size > 1) or parts[:1]
    together = parts[0]
    if together.size == len(together.ids):
        return together  # a key of its own for every row: no further key can divide it
    for part in parts[1:]:
        if together.size * part.size >= 2**62 >> len(part.ids).bit_length():  # leaves room for sorting, below
            together = densify(together.ids)
        together = Codes(together.ids * part.size + part.ids, together.size * part.size)
    return together if len(parts) == 1 else densify(together.ids, together.size)


def order_rows(codes: Codes, turn: np.ndarray | None, seat: Callable[[], np.ndarray] | None = None) -> Segments:
    """`Segments` of a key's `Codes`: its rows sorted by (code, `turn`, `seat`); without them, in the table's order.

    seat: gives a number of each row's agent that does not depend on the order of the rows; asked only if rows share a
    turn, which then are one moment. Left out: their order is that of the table, and each is a moment of its own.
    """
    ids = codes.ids
    lengths = np.bincount(ids, minlength=codes.size)
    steps = np.diff(ids)
    ordered = bool((steps >= 0).all()) and (turn is None or bool(((np.diff(turn) >= 0) | (steps > 0)).all()))
    order = None
    if not ordered:
        order = np.argsort(ids, kind="stable")
        if turn is not None and not ((np.diff(turn[order]) >= 0) | (np.diff(ids[order]) > 0)).all():
            order = np.lexsort((turn, ids))
    starts = np.cumsum(lengths) - lengths
    if turn is None or seat is None:
        return Segments(order, starts, lengths)
    then = turn if order is None else turn[order]
    together = then[1:] == then[:-1]
    if order is None:
        together &= steps == 0
    else:
        together[(starts[1:] - 1)[(starts[1:] > 0) & (starts[1:] < len(ids))]] = False
    if not together.any():
        return Segments(order, starts, lengths)
    order = np.lexsort((seat(), turn, ids))
    return Segments(order, starts, lengths, np.cumsum(np.append(True, ~together)) - 1)
