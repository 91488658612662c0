"""What was said, by whom: the table of turns as messages, and how alike two texts are.

A row of `Turns` holds what an agent observed and what it did. What it observed is a tool's answer if its previous turn
called a tool, else a person's message. A table with a column `role` (human, agent, observation) says it itself: then a
row is one message, and `action` its text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl

from palaestra.errors import InputError
from palaestra.turns import Turns

ROLES = ("human", "agent", "observation")
LAST, LONG, HEAD = 100, 2000, 0.2
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")


def shorten(text: str) -> str:
    """At most 2 000 characters: 20 % of the head, 80 % of the tail."""
    return text if len(text) <= LONG else text[: int(HEAD * LONG)] + text[-(LONG - int(HEAD * LONG)) :]


def messages(turns: Turns) -> pl.DataFrame:
    """(row, episode, position, role, text): the last 100 messages of each episode in order; empty texts left out.

    row: of the table. episode: its key as a number (`turns.codes("episode")`). position: within the episode.

    Raises:
        InputError: the column `role` holds another role.
    """
    segments = turns.segments("episode")
    order = np.arange(len(turns)) if segments.order is None else segments.order
    episode = np.repeat(np.arange(len(segments.lengths)), segments.lengths)
    frame = turns.frame[order.tolist()]

    def texts(name: str) -> pl.Expr:
        return pl.col(name).cast(pl.String) if name in frame.columns else pl.lit(None, pl.String)

    base = frame.select(said=texts("action"), heard=texts("observation"), tool=texts("tool"), role=texts("role"))
    base = base.with_columns(row=pl.Series(order), episode=pl.Series(episode)).with_row_index("at")
    if "role" in frame.columns:
        wrong = base.filter(~pl.col("role").is_in(ROLES))["role"].unique().to_list()
        if wrong:
            raise InputError(f"column 'role' holds {wrong[0]!r}; roles are {', '.join(ROLES)}")
        long = base.select("row", "episode", "role", "at", half=pl.lit(1), text="said")
    else:
        called = pl.col("tool").is_not_null().shift(1).over("episode").fill_null(False)
        heard = pl.when(called).then(pl.lit("observation")).otherwise(pl.lit("human"))
        parts = [
            base.select("row", "episode", "at", role=heard, half=pl.lit(0), text="heard"),
            base.select("row", "episode", "at", role=pl.lit("agent"), half=pl.lit(1), text="said"),
        ]
        long = pl.concat(parts).sort("at", "half")
    long = long.filter(pl.col("text").str.strip_chars() != "").group_by("episode", maintain_order=True).tail(LAST)
    position = pl.int_range(pl.len()).over("episode")
    text = pl.col("text").map_elements(shorten, return_dtype=pl.String)
    return long.select("row", "episode", position.alias("position"), "role", text)


def words(text: str) -> list[str]:
    """Words in lower case, punctuation left out.

    >>> words("That's NOT what I meant!")
    ["that's", 'not', 'what', 'i', 'meant']
    """
    return _WORD.findall(text.lower().replace("’", "'"))


def trigrams(text: str) -> set[str]:
    """Character trigrams of the words, joined by single spaces."""
    joined = " ".join(words(text))
    return {joined[i : i + 3] for i in range(len(joined) - 2)}


def jaccard(a: Iterable[str], b: Iterable[str]) -> float:
    """|a ∩ b| / |a ∪ b|; two empty sets are not alike."""
    first, second = set(a), set(b)
    return len(first & second) / len(first | second) if first | second else 0.0


def cosine(a: Sequence[str], b: Sequence[str]) -> float:
    """Cosine of word counts."""
    vocabulary = {word: i for i, word in enumerate({*a, *b})}
    if not a or not b:
        return 0.0
    x, y = (np.bincount([vocabulary[w] for w in side], minlength=len(vocabulary)) for side in (a, b))
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))


def phrase_match(text: str, phrases: Sequence[str]) -> float:
    """Confidence that a message says one of these: 1 if it holds one word for word, else how alike the whole is.

    Character trigrams at a Jaccard index of .65 or more, then word counts at a cosine of .60 or more; else 0.
    """
    said = words(text)
    line = f" {' '.join(said)} "
    if any(f" {' '.join(words(phrase))} " in line for phrase in phrases):
        return 1.0
    grams = trigrams(text)
    near = max((jaccard(grams, trigrams(phrase)) for phrase in phrases), default=0.0)
    if near >= 0.65:
        return near
    near = max((cosine(said, words(phrase)) for phrase in phrases), default=0.0)
    return near if near >= 0.6 else 0.0
