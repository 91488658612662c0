"""Aggregates of a column as plain floats."""

from __future__ import annotations

from typing import Any

__all__ = ["float_or_zero"]


def float_or_zero(value: Any) -> float:
    """Float of a value that a Polars aggregate gave; 0 for None, when there was nothing to aggregate.

    polars types `Series.max()` and the like as any literal or None, because a column may hold anything.

    Args:
        value: what `Series.max()`, `min()` or `mean()` of a column of numbers gave.

    Example:
        >>> import polars as pl
        >>> float_or_zero(pl.Series([1, 3]).max()), float_or_zero(pl.Series([], dtype=pl.Float64).mean())
        (3.0, 0.0)
    """
    return 0.0 if value is None else float(value)
