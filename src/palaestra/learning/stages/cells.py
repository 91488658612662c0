"""Shared parts of stages that learn values: running means by key, and vectors of observations and actions."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError

_WORDS = re.compile(r"\w+|[^\w\s]")


def keys_of(turns: Turns, over: Sequence[str]) -> pl.Series:
    """Text series: each row's values of columns `over` of `Turns` joined to one key, alike in all iterations."""
    for name in over:
        turns._require(name, f"key {name!r}: ")
    parts = [pl.col(name).cast(pl.String).fill_null("") for name in over]
    return turns.frame.select(key=pl.concat_str(parts, separator="\x1f"))["key"]


class Cells:
    """Table of running means of a value by key: `add` updates them, `value` looks them up.

    In each update a cell moves to the mean of its new values by m/(n + m), n and m the
    numbers of old and new ones, but at least by `rate`: rate = 0 is the mean of all that was ever seen, 1 that of the
    last time.

    A key that was never met has the mean of everything, 0 before that.

    >>> cells = Cells(rate=0.0)
    >>> cells.add(pl.Series(["a", "a", "b"]), np.array([1.0, 2.0, np.nan]))
    >>> cells.value(pl.Series(["a", "c"]))
    array([1.5, 1.5])
    """

    def __init__(self, rate: float) -> None:
        if not 0 <= rate <= 1:
            raise InputError(f"rate={rate} must lie in [0, 1]")
        self.rate = rate
        self.places: dict[str, int] = {}
        self.mean, self.count = np.zeros(0), np.zeros(0)

    def add(self, keys: pl.Series, x: np.ndarray) -> None:
        """Update the means by new values; missing ones are left out."""
        known = ~np.isnan(x)
        distinct, inverse = np.unique(keys.to_numpy()[known].astype(str), return_inverse=True)
        if not len(distinct):
            return
        at = np.array([self.places.setdefault(key, len(self.places)) for key in distinct.tolist()])
        new = np.zeros(len(self.places) - len(self.mean))
        self.mean, self.count = np.concatenate([self.mean, new]), np.concatenate([self.count, new])
        number = np.bincount(inverse)
        step = np.maximum(number / (self.count[at] + number), self.rate)
        self.mean[at] += step * (np.bincount(inverse, x[known]) / number - self.mean[at])
        self.count[at] += number

    def find(self, keys: pl.Series) -> np.ndarray:
        """Place of each key, -1 if it was never met; int64[rows]."""
        distinct, inverse = np.unique(keys.to_numpy().astype(str), return_inverse=True)
        at = np.array([self.places.get(key, -1) for key in distinct.tolist()], np.int64)
        return np.asarray(at[inverse])

    def value(self, keys: pl.Series) -> np.ndarray:
        """Mean of each key, float64[rows]; of an unknown key the mean of all values."""
        at = self.find(keys)
        everything = self.mean @ self.count / max(self.count.sum(), 1.0)
        return np.asarray(np.where(at >= 0, np.append(self.mean, 0.0)[at], everything))

    def state_dict(self) -> dict[str, Any]:
        """Keys in the order in which they were met, their means and counts."""
        return {"keys": list(self.places), "mean": self.mean, "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.places = {key: place for place, key in enumerate(state["keys"])}
        self.mean, self.count = np.array(state["mean"], float), np.array(state["count"], float)


def hashed(texts: pl.Series, size: int) -> np.ndarray:
    """Signed hashed bag of words and bigrams of each text of a series, scaled to length 1; float64[rows, size].

    The same in every process. A stand-in for an encoder: equal texts are equal, alike texts are alike.
    """
    distinct, inverse = np.unique(texts.fill_null("").to_numpy().astype(str), return_inverse=True)
    found = np.zeros((len(distinct), size))
    for row, text in enumerate(distinct.tolist()):
        words = _WORDS.findall(text.casefold())
        for piece in [*words, *map(" ".join, itertools.pairwise(words))]:
            code = int.from_bytes(hashlib.blake2b(piece.encode(), digest_size=8).digest(), "little")
            for part in (code & 0xFFFFFFFF, code >> 32):  # two places each: what shares one seldom shares the other
                found[row, (part >> 1) % size] += 1.0 if part & 1 else -1.0
    length = np.linalg.norm(found, axis=1, keepdims=True)
    return np.asarray((found / np.where(length > 0, length, 1.0))[inverse])


def vectors(turns: Turns, size: int, *, action: bool = False) -> np.ndarray:
    """Features of each row of `Turns`: env's array or hashed observation, agent, 1, with `action` its text; float64.

    The env's array if every row has one (`features`), else the hashed text; then the agent's name, hashed, and 1.
    """
    frame = turns.frame
    shown = "features" in frame.columns and frame["features"].null_count() == 0 and len(frame) > 0
    seen = np.array(frame["features"].to_list(), float) if shown else hashed(frame["observation"], size)
    parts = [seen, hashed(frame["agent"].cast(pl.String), 8), np.ones((len(frame), 1))]
    return np.hstack([*parts, hashed(frame["action"], size)] if action else parts)
