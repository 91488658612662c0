"""A detector is a filter that emits rows: (row of the table, type, confidence, evidence)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import polars as pl

SCHEMA = {"row": pl.Int64, "type": pl.String, "confidence": pl.Float64, "evidence": pl.String}


class Detection(NamedTuple):
    """One detection. evidence: the words it rests on; shown to people, so never more than a line."""

    row: int
    type: str
    confidence: float
    evidence: str


def found(rows: Iterable[Detection], layer: str) -> pl.DataFrame:
    """The detections of a layer as a frame of `SCHEMA`."""
    cut = [(int(r.row), f"{layer}.{r.type}", float(r.confidence), " ".join(r.evidence.split())[:200]) for r in rows]
    return pl.DataFrame(cut, schema=SCHEMA, orient="row")
