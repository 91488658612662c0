"""A detector is a filter that emits rows: (row of the table, type, confidence, evidence)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import polars as pl

SCHEMA = {"row": pl.Int64, "type": pl.String, "confidence": pl.Float64, "evidence": pl.String}


class Detection(NamedTuple):
    """Data of one detection in a log: row, type, confidence, and evidence, the words that show it.

    Evidence is shown to people, so it is never more than a line.
    """

    row: int
    type: str
    confidence: float
    evidence: str


def found(rows: Iterable[Detection], layer: str) -> pl.DataFrame:
    """DataFrame of a layer's `Detection`s: types get the layer as prefix, evidence is cut to 200 characters."""
    cut = [(int(r.row), f"{layer}.{r.type}", float(r.confidence), " ".join(r.evidence.split())[:200]) for r in rows]
    return pl.DataFrame(cut, schema=SCHEMA, orient="row")
