"""Signals inside other people's trainers: `integrations.verl` and `integrations.trl`. What both share is here.

A trainer hands over arrays; they become a `Turns` table, the signal is evaluated, its values go back as tensors. The
trainer keeps its rollouts, its loss and its optimiser. Left out: reading a trainer's own config (γ, λ and the like): a
signal carries its parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from palaestra.algebra.codes import code_array
from palaestra.algebra.signals import Signal, Value, short
from palaestra.algebra.turns import SCHEMA, Ragged, Turns
from palaestra.errors import LearnerError, MissingColumnError, SchemaError


def table(signal: Signal, given: Mapping[str, Any], fields: Mapping[str, Any], columns: Mapping[str, str]) -> Turns:
    """Make a `Turns` table of a trainer's batch, a row per sequence: columns `given`, `fields` that a `Signal` needs.

    given: columns that are always there. fields: what the trainer has besides, by its own names; only what is asked for
    becomes a column. columns: {column: field} where the names differ. Without an `episode` every row is its own;
    `turn` counts an episode's rows. Text in `group` and `episode` is numbered, in `state` hashed.

    Raises:
        MissingColumnError: the signal needs a column, or `columns` names a field, that the trainer does not hand over.
        SchemaError: a field cannot be a column.
    """
    for name, field in columns.items():
        if field not in fields:
            raise MissingColumnError(f"columns: {name!r} is to be field {field!r}, which is missing{_handed(fields)}")
    wanted = {name: name for name in signal.needs() if name in fields and name not in given} | dict(columns)
    made = [_column(name, values) for name, values in given.items() if name not in wanted]
    frame = pl.DataFrame([*made, *(_column(name, fields[field]) for name, field in wanted.items())])
    for name, keys in (("episode", ["group"]), ("turn", ["group", "episode"])):
        if name not in frame.columns:
            within = [key for key in keys if key in frame.columns]
            number = pl.int_range(pl.len(), dtype=pl.Int32)
            frame = frame.with_columns((number.over(within) if within else number).alias(name))
    for name in sorted(signal.needs().difference(frame.columns)):
        raise MissingColumnError(
            f"{short(signal)}: column {name!r} is missing; map a field to it with columns={{{name!r}: ...}}"
            + _handed(fields)
        )
    return Turns(frame)


def over_tokens(value: Value, mask: np.ndarray) -> np.ndarray:
    """Spread a signal's value per row or token over the tokens: float64[rows, length], 0 outside `mask` or if missing.

    Raises:
        LearnerError: a row has another number of values than tokens.
    """
    lengths = mask.sum(1)
    placed = np.zeros(mask.shape)
    if isinstance(value, Ragged):
        if not np.array_equal(value.lengths, lengths):
            at = int(np.flatnonzero(value.lengths != lengths)[0])
            raise LearnerError(f"row {at}: {value.lengths[at]} values per token for {lengths[at]} tokens")
        placed[mask] = value.values
    else:
        placed[mask] = np.repeat(value, lengths)
    return np.nan_to_num(placed, copy=False, nan=0.0)


def _handed(fields: Mapping[str, Any]) -> str:
    return f"; the trainer hands over {', '.join(map(repr, sorted(fields))) or 'nothing else'}"


def _column(name: str, entries: Sequence[Any]) -> pl.Series:
    if isinstance(entries, pl.Series):
        return entries.alias(name)
    plain = entries.tolist() if isinstance(entries, np.ndarray) else list(entries)
    try:
        series = pl.Series(name, plain, strict=False)
    except (TypeError, pl.exceptions.PolarsError) as error:
        raise SchemaError(f"field for column {name!r}: {str(error).splitlines()[0]}") from error
    if series.dtype == pl.Object:
        raise SchemaError(
            f"field for column {name!r} holds {type(plain[0]).__name__}: give numbers, text or truth values"
        )
    if series.dtype == pl.String and name in ("group", "episode"):
        return pl.Series(name, code_array(series.to_arrow()).ids)
    if name in SCHEMA and SCHEMA[name].dtype == pl.UInt64 and not series.dtype.is_integer():
        return series.hash()
    return series.fill_nan(None) if series.dtype.is_float() else series
