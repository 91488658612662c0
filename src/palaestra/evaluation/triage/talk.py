"""The table of turns as messages with their speakers, and similarity of texts.

A row of `Turns` holds what an agent observed and what it did. What it observed is a tool's answer if its own previous
turn called a tool, else a person's message. A table with a column `role` (human, agent, observation) says it itself:
then a row is one message, and `action` its text.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError

ROLES = ("human", "agent", "observation")
LAST, LONG, HEAD = 100, 2000, 0.2
SAME, ALIKE = 0.65, 0.60
FILLER = frozenset({
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "can", "could", "do", "for", "from", "have", "i",
    "in", "is", "it", "me", "my", "of", "on", "or", "please", "so", "that", "the", "this", "to", "was", "we",
    "what", "will", "with", "would", "you", "your",
})  # fmt: skip
"""Words without content."""
_OPENING = frozenset({
    "no", "but", "well", "ok", "okay", "oh", "hey", "hi", "sorry", "wait", "please", "and", "so", "ugh", "then", "just",
    "hm", "hmm", "now", "actually", "look", "listen", "great", "yes",
})  # fmt: skip
"""What people open a sentence with, whatever they say then."""
_MARK = re.compile(r"[.!?;,:\n–—]+|\s-\s")
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")


def shorten(text: str) -> str:
    """A text cut to 2 000 characters: 20 % from the head, 80 % from the tail."""
    return text if len(text) <= LONG else text[: int(HEAD * LONG)] + text[-(LONG - int(HEAD * LONG)) :]


def messages(turns: Turns) -> pl.DataFrame:
    """Table of the last 100 non-empty messages of each episode of `Turns`: (row, episode, position, role, text).

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

    base = (
        pl.DataFrame({"row": order, "episode": episode, "agent": frame["agent"] if "agent" in frame.columns else None})
        .hstack(
            frame.with_columns(
                said=texts("action"), heard=texts("observation"), tool=texts("tool"), role=texts("role")
            ).select("said", "heard", "tool", "role")  # a select alone gives one row where the table has none of them
        )
        .with_row_index("at")
    )
    if "role" in frame.columns:
        wrong = base.filter(~pl.col("role").is_in(ROLES))["role"].unique().to_list()
        if wrong:
            raise InputError(f"column 'role' holds {wrong[0]!r}; roles are {', '.join(ROLES)}")
        long = base.select("row", "episode", "role", "at", half=pl.lit(1), text="said")
    else:
        called = pl.col("tool").is_not_null().shift(1).over("episode", "agent").fill_null(False)
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
    """List of the words of a text in lower case, punctuation left out.

    >>> words("That's NOT what I meant!")
    ["that's", 'not', 'what', 'i', 'meant']
    """
    return _WORD.findall(text.lower().replace("’", "'"))


@functools.lru_cache(maxsize=4096)
def trigrams(text: str) -> frozenset[str]:
    """Set of the character trigrams of a text's lower-case words, joined by single spaces."""
    joined = " ".join(words(text))
    return frozenset(joined[i : i + 3] for i in range(len(joined) - 2))


@functools.lru_cache(maxsize=4096)
def _counts(text: str) -> tuple[Counter[str], float, str]:
    """Word counts, the squared length of their vector, and the words as a line."""
    said = words(text)
    counts = Counter(said)
    return counts, float(sum(n * n for n in counts.values())), f" {' '.join(said)} "


def jaccard(a: Iterable[str], b: Iterable[str]) -> float:
    """Jaccard index of two sets, |a ∩ b| / |a ∪ b|; 0 for two empty sets."""
    first, second = (x if isinstance(x, frozenset) else frozenset(x) for x in (a, b))
    shared = len(first & second)
    return shared / (len(first) + len(second) - shared) if first or second else 0.0


def cosine(a: str, b: str) -> float:
    """Cosine of the word counts of two texts."""
    (x, xx, _), (y, yy, _) = _counts(a), _counts(b)
    few, many = (x, y) if len(x) < len(y) else (y, x)
    shared = sum(n * many[word] for word, n in few.items() if word in many)
    return shared / (xx * yy) ** 0.5 if shared else 0.0


@functools.lru_cache(maxsize=4096)
def _sentences(text: str) -> tuple[str, ...]:
    """The parts between marks, as words, without what people open with."""
    parts = (words(part) for part in _MARK.split(text))
    return tuple(" ".join(itertools.dropwhile(_OPENING.__contains__, part)) for part in parts if part)


@functools.lru_cache(maxsize=4096)
def _denies(text: str) -> bool:
    return any(word in ("not", "no", "never", "nothing") or word.endswith("n't") for word in words(text))


def phrase_match(text: str, phrases: Sequence[str]) -> float:
    """Confidence in [0, 1] that a message says one of the phrases: 1 if word for word, else a similarity >= .6, or 0.

    `^phrase` must open a sentence, after "no", "well", "please" and the like; `=phrase` must be all of one. Others may
    also be alike: character trigrams at a Jaccard index of .65 or more, then word counts at a cosine of .60 or more, as
    published; but, ours, the message must deny if the phrase does, and for the cosine hold its words of content: "this
    is useful" is not nearly "this is useless". Else 0.
    """
    line, plain = _counts(text)[2], [phrase for phrase in phrases if phrase[0] not in "^="]
    if any(_counts(phrase)[2] in line for phrase in plain):
        return 1.0
    for phrase in phrases:
        wanted = _counts(phrase[1:])[2].strip()
        for said in _sentences(text) if phrase[0] in "^=" else ():
            if said == wanted or (phrase[0] == "^" and said.startswith(wanted + " ")):
                return 1.0
    grams = trigrams(text)
    near = 0.0
    alike = [phrase for phrase in plain if _denies(phrase) == _denies(text)]
    for phrase in alike:
        other = trigrams(phrase)
        if min(len(grams), len(other)) >= SAME * max(len(grams), len(other)):  # else their index is below it
            near = max(near, jaccard(grams, other))
    if near >= SAME:
        return near
    said_words = set(words(text))
    alike = [phrase for phrase in alike if {w for w in words(phrase) if w not in FILLER} <= said_words]
    near = max((cosine(text, phrase) for phrase in alike), default=0.0)
    return near if near >= ALIKE else 0.0
