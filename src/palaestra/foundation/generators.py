"""NumPy generators whose seeding is remembered: most of the time that one takes to make is the hashing of its seed."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence


class Words(ISeedSequence):
    """NumPy seed sequence that gives a PCG64 four given 64-bit words as its state.

    words: uint64[4].
    """

    def __init__(self, words: np.ndarray) -> None:
        self._words = words

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:
        """The first `n_words` of the given words, as numpy's bit generators ask a seed sequence for them."""
        return self._words[:n_words]


def generator(seed: int) -> np.random.Generator:
    """`np.random.Generator` equal to `default_rng(seed)`, made faster for a seed that was used or `remember`ed.

    All episodes of a group have one seed, and evaluations repeat theirs.

    >>> generator(5).random() == np.random.default_rng(5).random()
    True
    """
    return np.random.Generator(np.random.PCG64(_words(seed)))  # type: ignore[arg-type]


def remember(seeds: Collection[int]) -> None:
    """Hash many seeds at once and cache them, so that `generator(seed)` is fast; the last such batch is kept.

    It takes a tenth of the time that they take one by one.

    seeds: those that are used next. Fewer than `FEW`, and seeds of more than 64 bits, are left to `generator`.
    """
    global _READY
    wanted = [seed for seed in dict.fromkeys(seeds) if 0 <= seed < 2**64][:MOST]
    if len(wanted) >= FEW:
        _READY = dict(zip(wanted, range(len(wanted)))), hashed(np.array(wanted, np.uint64))


def hashed(seeds: np.ndarray) -> np.ndarray:
    """State words of `SeedSequence(seed).generate_state(4, uint64)` for each of many seeds, uint64[n, 4].

    The hash of M. O'Neill's randutils that NumPy documents, on columns: a pool of four 32-bit words takes in the seed,
    each word is mixed with each other, and eight words are drawn from it. Verified by equality with NumPy's.

    seeds: uint64[n].

    Returns:
        uint64[n, 4].
    """
    low = np.uint64(0xFFFFFFFF)
    given = [(seeds & low).astype(np.uint32), (seeds >> np.uint64(32)).astype(np.uint32)]
    given += [np.zeros_like(given[0])] * 2
    steps = iter(_MIX)
    pool: list[np.ndarray] = [_scramble(each, *next(steps)) for each in given]
    for source in range(4):
        for target in range(4):
            if source != target:
                mixed: np.ndarray = pool[target] * _LEFT - _scramble(pool[source], *next(steps)) * _RIGHT
                pool[target] = mixed ^ (mixed >> _HALF)
    drawn = [_scramble(pool[place % 4], *step) for place, step in enumerate(_DRAW)]
    return np.stack([drawn[i] | (drawn[i + 1].astype(np.uint64) << np.uint64(32)) for i in (0, 2, 4, 6)], 1)


def _scramble(value: np.ndarray, before: np.uint32, after: np.uint32) -> np.ndarray:
    found: np.ndarray = (value ^ before) * after
    found ^= found >> _HALF
    return found


def _constants(first: int, factor: int, count: int) -> list[tuple[np.uint32, np.uint32]]:
    """Pairs of neighbours of first, first × factor, first × factor² … modulo 2^32."""
    powers = [first * pow(factor, k, 2**32) % 2**32 for k in range(count + 1)]
    return [(np.uint32(a), np.uint32(b)) for a, b in itertools.pairwise(powers)]


_MIX = _constants(0x43B0D7E5, 0x931E8875, 16)
_DRAW = _constants(0x8B51F9DD, 0x58F38DED, 8)
_LEFT, _RIGHT, _HALF = np.uint32(0xCA01F9DD), np.uint32(0x4973F715), np.uint32(16)
FEW, MOST = 32, 16384
"""Seeds from which on it pays to hash them together, and how many are remembered."""
_READY: tuple[dict[int, int], np.ndarray] = {}, np.empty((0, 4), np.uint64)


def _words(seed: int) -> Words:
    places, words = _READY
    place = places.get(seed)
    return _hashed(seed) if place is None else Words(words[place])


@functools.lru_cache(4096)
def _hashed(seed: int) -> Words:
    return Words(np.random.SeedSequence(seed).generate_state(4, np.uint64))
