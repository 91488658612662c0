"""Features of an answer beside a right one, which a recipe may name: `palaestra.judges.answer_features:overlap`."""

from __future__ import annotations

import numpy as np
import polars as pl

from palaestra.errors import InputError

_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBERS = {word: str(number) for number, word in enumerate(_WORDS)}


def overlap(rows: pl.DataFrame, reference: pl.DataFrame | None, condition: pl.DataFrame | None) -> np.ndarray:
    """Three features of each response beside a right answer, float64[rows, 3]: contains it, overlap, length.

    Whether the right answer's words are all in it, the share of its words that are the right answer's, and
    log(1 + words). Numbers up to ten count as their digits.

    Raises:
        InputError: there is no reference.
    """
    if reference is None:
        raise InputError("overlap: needs a reference, a row with the right answer as `response` for each row")
    said, right = (_words(frame["response"]) for frame in (rows, reference))
    both = pl.DataFrame({"said": said, "right": right})
    found = both.select(
        pl.col("right").list.set_difference("said").list.len().eq(0).cast(pl.Float64),
        (pl.col("said").list.eval(pl.element()).list.set_intersection("right").list.len() / pl.col("said").list.len())
        .fill_nan(0.0)
        .alias("precision"),
        pl.col("said").list.len().cast(pl.Float64).log1p().alias("length"),
    )
    return found.fill_null(float("nan")).to_numpy()


def _words(texts: pl.Series) -> pl.Series:
    words = texts.cast(pl.String).str.to_lowercase().str.extract_all(r"\w+")
    return words.list.eval(pl.element().replace(_NUMBERS))
