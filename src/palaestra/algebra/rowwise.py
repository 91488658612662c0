"""Which polars expressions may be leaves of a signal: those whose value in a row depends on that row alone."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any

import polars as pl

from palaestra.errors import ExpressionError

_ACROSS_ROWS = {
    "Agg", "CumCount", "CumMax", "CumMin", "CumProd", "CumSum", "Diff", "EwmMean", "EwmMeanBy", "EwmStd", "EwmVar",
    "Explode", "FillNullWithStrategy", "Filter", "Gather", "Interpolate", "InterpolateBy", "IsDuplicated",
    "IsFirstDistinct", "IsLastDistinct", "IsUnique", "Len", "Mode", "Over", "PctChange", "QCut", "Quantile", "RLEID",
    "Random", "Rank", "Reverse", "Rolling", "RollingExpr", "RollingExprBy", "Shift", "Slice", "Sort", "SortBy",
    "Window",
}  # fmt: skip
_WITHIN_ROWS = {"ArrayExpr", "Column", "ListExpr", "Literal", "StringExpr", "StructExpr", "TemporalExpr", "evaluation"}


def rowwise(expr: pl.Expr) -> str:
    """Hash of a polars expression as text; raises ExpressionError unless it is one column computed row by row.

    Raises:
        ExpressionError: it looks beyond its own row, stands for several columns, or cannot be read.
    """
    try:
        tree = expr.meta.serialize(format="json")
    except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
        raise ExpressionError(f"{expr}: polars cannot say what it does ({error}); use with_column() instead") from error
    across = sorted(_ACROSS_ROWS.intersection(_polars_names(json.loads(tree))))
    if across or expr.meta.has_multiple_outputs():
        why = f"looks across rows ({', '.join(across)})" if across else "stands for several columns"
        raise ExpressionError(
            f"{expr}: a polars window or aggregate cannot be a leaf, and this one {why}; "
            "use mean(), total(), shift(), cumulative() … with over="
        )
    return f"{zlib.crc32(tree.encode()):08x}"


def _polars_names(node: Any) -> Iterator[str]:
    """Names of nodes and functions in a serialised expression, without what stays inside one value."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, list):
        for child in node:
            yield from _polars_names(child)
    elif isinstance(node, dict):
        for name, child in node.items():
            yield name
            if name == "Alias":
                yield from _polars_names(child[0])
            elif name not in _WITHIN_ROWS:
                yield from _polars_names(child)
