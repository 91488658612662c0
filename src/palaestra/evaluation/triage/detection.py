"""A detector is a filter that emits rows: (row of the table, type, confidence, evidence)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import polars as pl

SCHEMA = {"row": pl.Int64, "type": pl.String, "confidence": pl.Float64, "evidence": pl.String}


class Detection(NamedTuple):
    """One detection in a log: row, type, confidence, and evidence, the words that show it.

    Evidence is shown to people, so it is never more than a line.
    """

    row: int
    type: str
    confidence: float
    evidence: str


def found(rows: Iterable[Detection], layer: str) -> pl.DataFrame:
    """Detections of a layer as a frame of `SCHEMA`, types prefixed by the layer, evidence cut to 200 characters."""
    cut = [(int(r.row), f"{layer}.{r.type}", float(r.confidence), " ".join(r.evidence.split())[:200]) for r in rows]
    return pl.DataFrame(cut, schema=SCHEMA, orient="row")
