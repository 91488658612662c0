"""Indicators of typical errors in a file, and a pool that finds those to be expected in a message ([111], 2602.23258).

The file has a JSON object in each line: `name`, `definition` of the error, `trigger` (when it is to be expected) and
`risk` (what it leads to). `palaestra.judges.indicators` makes it from failed messages; `audited(audit="pool(…)")` reads
it. Left out: embeddings, which the paper takes; likeness is that of words here.
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from palaestra.envs.local_tools import MOST_WORDS, Library
from palaestra.errors import InputError, StorageError
from palaestra.foundation.files import write_text
from palaestra.rewards.shaping.goals import word_cosine


class Indicator(NamedTuple):
    """Data of a typical error that an audit looks for: its name, definition, trigger and risk.

    definition: what the error is. trigger: when it is to be expected. risk: what it leads to.
    """

    name: str
    definition: str
    trigger: str
    risk: str = ""


class IndicatorPool:
    """Pool of `Indicator` objects: `nearest` finds the k that a scenario calls for, by their triggers.

    Args:
        indicators: Each under a name of its own.
        k: How many of them an audit asks about.

    Raises:
        InputError: there are none, two share a name, or k is below 1.

    >>> carry = Indicator("carry", "The carry is forgotten.", "Numbers are added digit by digit.")
    >>> pool = IndicatorPool([Indicator("unit", "The unit is missing.", "A length is asked for."), carry], k=1)
    >>> [each.name for each in pool.nearest("What is 17 + 28? I add digit by digit: 35.")]
    ['carry']
    """

    def __init__(self, indicators: Iterable[Indicator], k: int = 5) -> None:
        self.indicators, self.k = tuple(indicators), k
        names = Counter(each.name for each in self.indicators)
        if not names or k < 1 or max(names.values()) > 1:
            raise InputError(f"pool: k={k} of {len(names)} indicators, expected 1 or more, each with a name of its own")
        self._named = {f"indicator{at:06d}": each for at, each in enumerate(self.indicators)}
        self._index = Library({name: each.trigger for name, each in self._named.items()})
        self._documents = Counter(word for each in self.indicators for word in set(_words(each.trigger)))

    def nearest(self, scenario: str) -> list[Indicator]:
        """The k indicators whose triggers fit a scenario best (BM25); fewer where no more share a word with it."""
        known = [word for word in dict.fromkeys(_words(scenario)) if word in self._documents]
        rarest = sorted(known, key=self._documents.__getitem__)[:MOST_WORDS]
        return [self._named[name] for name, _ in self._index.find(" ".join(rarest), self.k)]


def most_alike(definition: str, indicators: Sequence[Indicator]) -> tuple[Indicator, float]:
    """The indicator whose definition is most similar to a text, and the similarity: cosine of word counts, 0 to 1.

    >>> most_alike("It is late.", [Indicator("early", "It is early.", "noon")])[0].name
    'early'
    """
    found = [word_cosine(definition, each.definition) for each in indicators]
    best = max(range(len(found)), key=found.__getitem__)
    return indicators[best], found[best]


def read_indicators(path: str | Path) -> list[Indicator]:
    """Reads a file of indicators, a JSON object in each line; further fields are ignored.

    Raises:
        StorageError: the file cannot be read. InputError: names the line that is no indicator.
    """
    try:
        lines = Path(path).read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{path}: cannot be read as a file of indicators ({error})") from error
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            made = Indicator(row["name"], row["definition"], row["trigger"], row.get("risk") or "")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputError(f"{path}, line {number}: no object with {', '.join(Indicator._fields)}") from error
        if not all(isinstance(each, str) for each in made) or not all(each.strip() for each in made[:3]):
            raise InputError(f"{path}, line {number}: name, definition and trigger are texts that say something")
        found.append(made)
    return found


def write_indicators(path: str | Path, indicators: Iterable[Indicator]) -> None:
    """Writes a file of indicators, whole or not at all.

    Raises:
        StorageError: it cannot be written.
    """
    write_text(Path(path), "".join(json.dumps(each._asdict(), ensure_ascii=False) + "\n" for each in indicators))


def read_pool(path: str | Path, k: int = 5) -> IndicatorPool:
    """The pool of a file of indicators; read once by all who ask for it, until the file changes.

    Raises:
        StorageError, InputError: see `read_indicators` and `IndicatorPool`.
    """
    try:
        state = Path(path).stat()
    except OSError as error:
        raise StorageError(f"{path}: cannot be read as a file of indicators ({error.strerror})") from error
    return _pool(str(path), k, (state.st_mtime_ns, state.st_size))


@functools.lru_cache(16)
def _pool(path: str, k: int, state: tuple[int, int]) -> IndicatorPool:
    try:
        return IndicatorPool(read_indicators(path), k)
    except InputError as error:
        raise InputError(str(error) if str(error).startswith(path) else f"{path}: {error}") from error


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())
