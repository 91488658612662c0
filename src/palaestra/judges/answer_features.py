"""Features of an answer or a transcript, which a recipe may name: `palaestra.judges.answer_features:overlap`."""

from __future__ import annotations

import zlib

import numpy as np
import polars as pl

from palaestra.errors import InputError

_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBERS = {word: str(number) for number, word in enumerate(_WORDS)}


def overlap(rows: pl.DataFrame, reference: pl.DataFrame | None, condition: pl.DataFrame | None) -> np.ndarray:
    """float64[rows, 3] of table `rows` against table `reference`: contains the right one, word precision, log length.

    Features of each response beside a right answer.

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


def line_pairs(
    rows: pl.DataFrame, reference: pl.DataFrame | None, condition: pl.DataFrame | None, *, buckets: int = 512
) -> np.ndarray:
    r"""Counts of pairs of neighbouring lines in each response of table `rows`, hashed: float64[rows, buckets].

    `reference` and `condition` are not used.

    In a transcript of `palaestra.judges.cases` what was seen and what was done then are neighbours. So a linear model
    of these features has a weight for each action in each situation: an outcome model for best-of-n, as in [178]
    (arXiv 2506.11425). NaN where there is no response.

    >>> rows = pl.DataFrame({"response": ["seen\ndone", "done\nseen", "seen\ndone\nseen"]})
    >>> one, other, both = line_pairs(rows, None, None)
    >>> bool((one + other == both).all())
    True
    """
    lines = rows.select(row=pl.int_range(pl.len()), line=pl.col("response").cast(pl.String).str.split("\n"))
    pairs = lines.explode("line").select("row", pair=pl.col("line") + "\n" + pl.col("line").shift(-1).over("row"))
    pairs = pairs.drop_nulls()
    kinds = pairs["pair"].unique()
    code = {pair: zlib.crc32(pair.encode(errors="surrogatepass")) % buckets for pair in kinds.to_list()}
    place = pairs["row"].to_numpy() * buckets + pairs["pair"].replace_strict(code, return_dtype=pl.Int64).to_numpy()
    found = np.bincount(place, minlength=len(rows) * buckets).reshape(len(rows), buckets).astype(float)
    found[rows["response"].is_null().to_numpy()] = np.nan
    return found


def _words(texts: pl.Series) -> pl.Series:
    words = texts.cast(pl.String).str.to_lowercase().str.extract_all(r"\w+")
    return words.list.eval(pl.element().replace(_NUMBERS))
