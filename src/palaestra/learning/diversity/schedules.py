"""Schedules: whether a chunk of evaluations explores or exploits (STAX [198], arXiv 2111.01919)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from palaestra.errors import InputError
from palaestra.foundation.registry import read_call

Mode = Literal["explore", "exploit"]


@dataclass(frozen=True)
class Chunk:
    """Data of a finished chunk of a search: its mode, and the share of its evaluations that succeeded by its measure.

    Exploring succeeds where a genome is rewarded, exploiting where one is better than its emitter's best so far.
    """

    mode: Mode
    gain: float


class Schedule(Protocol):
    """Protocol of a schedule, a callable (chunks so far, share spent, rng) -> mode of the next, explore or exploit."""

    def __call__(self, chunks: Sequence[Chunk], spent: float, rng: np.random.Generator) -> Mode:
        """Mode of the next chunk, given those before; spent: share of all planned evaluations that are made."""


def alternate() -> Schedule:
    """Makes a `Schedule`, no arguments: exploring and exploiting take turns; the first chunk explores."""

    def decide(chunks: Sequence[Chunk], spent: float, rng: np.random.Generator) -> Mode:
        return "exploit" if chunks and chunks[-1].mode == "explore" else "explore"

    return decide


def fixed(explore: float = 0.5) -> Schedule:
    """Makes a `Schedule` in which each chunk explores with the same probability `explore`."""
    _share("explore", explore)

    def decide(chunks: Sequence[Chunk], spent: float, rng: np.random.Generator) -> Mode:
        return "explore" if rng.random() < explore else "exploit"

    return decide


def by_time(first: float = 1.0, last: float = 0.0) -> Schedule:
    """Makes a `Schedule` that draws explore with a chance from `first` to `last` by the share of evaluations made.

    The chance goes linearly, over all planned evaluations.
    """
    _share("first", first)
    _share("last", last)

    def decide(chunks: Sequence[Chunk], spent: float, rng: np.random.Generator) -> Mode:
        return "explore" if rng.random() < first + (last - first) * min(spent, 1.0) else "exploit"

    return decide


def bandit(discount: float = 0.9, width: float = 0.5) -> Schedule:
    """Makes a `Schedule` by discounted UCB over both modes: mean_m + width·√(ln Σ n / n_m), an untried mode first.

    Counts are n_m = Σ γ^age.
    """
    _share("discount", discount)

    def decide(chunks: Sequence[Chunk], spent: float, rng: np.random.Generator) -> Mode:
        count, gain = discounted(chunks, discount)
        if (count == 0).any():
            return MODES[int(np.argmin(count))]
        bonus = width * np.sqrt(np.log(max(count.sum(), 1.0)) / count)
        return MODES[int(np.argmax(gain / count + bonus))]

    return decide


MODES: tuple[Mode, Mode] = ("explore", "exploit")
SCHEDULES: Mapping[str, object] = {"alternate": alternate, "fixed": fixed, "by_time": by_time, "bandit": bandit}


def discounted(chunks: Sequence[Chunk], discount: float) -> tuple[np.ndarray, np.ndarray]:
    """Pair (count Σ γ^age, gain Σ γ^age·gain) per mode, float64[2] each, of a list of `Chunk`; γ is `discount`.

    Of the last chunk age is 0.

    >>> count, gain = discounted([Chunk("explore", 1.0), Chunk("exploit", 0.0), Chunk("explore", 0.0)], 0.5)
    >>> count.tolist(), gain.tolist()
    ([1.25, 0.5], [0.25, 0.0])
    """
    weights = discount ** np.arange(len(chunks))[::-1]
    mode = np.array([MODES.index(each.mode) for each in chunks], int)
    gains = np.array([each.gain for each in chunks], float)
    return np.bincount(mode, weights, 2), np.bincount(mode, weights * gains, 2)


def schedule(text: str) -> Schedule:
    """Schedule parsed from text: alternate(), fixed(0.7), by_time(1, 0), bandit(0.9).

    Raises:
        InputError: there is none of that name, or an option is wrong.
    """
    name, values, options = read_call(text if "(" in text else f"{text}()", "alternate()")
    if name not in SCHEDULES:
        raise InputError(f"modes={text!r} is one of {', '.join(SCHEDULES)}")
    try:
        return SCHEDULES[name](*values, **options)  # type: ignore[operator,no-any-return]
    except TypeError as error:
        raise InputError(f"modes={text!r}: {error}") from error


def _share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise InputError(f"{name}={value} must lie in [0, 1]")
