"""What an env said of a step, as columns of the table."""

from __future__ import annotations

import polars as pl

from palaestra.algebra.turns import Turns


def from_metadata(turns: Turns, **columns: pl.DataType | type[pl.DataType]) -> Turns:
    """The table with these entries of `metadata` (JSON) as columns, null where a row has none.

    >>> turns = Turns({"metadata": ['{"delta": -3, "evidence": [0, 2]}', None]})
    >>> turns = from_metadata(turns, delta=pl.Float64, evidence=pl.List(pl.Int64))
    >>> turns["delta"].to_list(), turns["evidence"].to_list()
    ([-3.0, None], [[0, 2], None])
    """
    read = turns["metadata"].str.json_decode(pl.Struct(dict(columns)))
    return turns.with_column(**{name: read.struct.field(name) for name in columns})
