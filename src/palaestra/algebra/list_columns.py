"""List columns from flat NumPy arrays and back, without Python lists.

Without `pa.array` and pyarrow's `to_numpy` too: both import pandas where it is installed, which takes half a second.
"""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa


def list_column(
    name: str,
    values: np.ndarray,
    lengths: np.ndarray,
    *,
    missing: np.ndarray | None = None,
    nan_to_null: bool = False,
) -> pl.Series:
    """Series of lists, one a row: the next `lengths[row]` of the flat values.

    Args:
        name: Of the Series.
        values: Values of all rows in sequence, [sum of lengths].
        lengths: Number of values of each row, int[rows].
        missing: Rows that are null, bool[rows]; None: no row is.
        nan_to_null: Whether a NaN becomes null.

    >>> list_column("ids", np.array([7, 8, 9]), np.array([2, 0, 1])).to_list()
    [[7, 8], [], [9]]
    """
    flat = pl.Series(values, nan_to_null=True).to_arrow() if nan_to_null else _arrow(values)
    offsets = _arrow(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    mask = None if missing is None else _arrow(missing)
    return pl.Series(name, pa.LargeListArray.from_arrays(offsets, flat, mask=mask))


def ragged(lists: pl.Series) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Triple of arrays of a Series of lists: flat values, mask of nulls among them, int64[rows] lengths (null: 0)."""
    array = lists.to_arrow()
    flat, lengths = pl.Series(array.flatten()), pl.Series(array.value_lengths())
    lengths = lengths.fill_null(0) if lengths.null_count() else lengths  # dear even where there is nothing to fill
    missing = flat.is_null().to_numpy() if flat.null_count() else np.zeros(len(flat), bool)
    return flat.to_numpy(), missing, lengths.to_numpy().astype(np.int64)


def _arrow(values: np.ndarray) -> pa.Array:
    if values.dtype.kind not in "iuf":  # truth values are bits there; texts, and what has gaps, are objects here
        return pl.Series(values.tolist() if values.dtype == object else values).to_arrow()
    whole = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(whole)])
