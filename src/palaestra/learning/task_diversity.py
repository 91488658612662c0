"""Diversity of the tasks that were proposed: how many there are in effect, and how far they have moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from palaestra.envs.task_keys import normalise, task_keys


def distinct_share(texts: Sequence[str]) -> float:
    """Share of distinct texts, after normalisation; nan of none.

    >>> distinct_share(["add 2 and 3", "Add 2 and 3.", "add 4 and 5", "add 4 and 5"])
    0.5
    """
    return len(np.unique(task_keys(texts))) / len(texts) if texts else float("nan")


def effective_number(texts: Sequence[str]) -> float:
    """Effective number of distinct texts (Hill number of order 1: exp of the entropy of their shares); nan of none.

    >>> effective_number(["a", "b", "c", "d"]), effective_number(["a"] * 1000)
    (4.0, 1.0)
    """
    if not texts:
        return float("nan")
    share = np.unique(task_keys(texts), return_counts=True)[1] / len(texts)
    return float(np.round(np.exp(-(share * np.log(share)).sum()), 12))


def word_shares(texts: Sequence[str]) -> dict[str, float]:
    """Dict {word: share} of each word among all words of the texts."""
    counts = Counter(word for text in texts for word in normalise(text).split())
    whole = sum(counts.values())
    return {word: count / whole for word, count in counts.items()}


def drift(now: Mapping[str, float], start: Mapping[str, float]) -> float:
    """Jensen–Shannon distance of two word distributions {word: share}, base 2: 0 if equal, 1 if they share no word.

    >>> drift({"a": 1.0}, {"a": 1.0}), drift({"a": 1.0}, {"b": 1.0})
    (0.0, 1.0)
    """
    words = sorted({*now, *start})
    if not words:
        return float("nan")
    one, two = (np.array([shares.get(word, 0.0) for word in words]) for shares in (now, start))
    middle = (one + two) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        bits = sum(np.where(each > 0, each * np.log2(each / middle), 0.0).sum() / 2 for each in (one, two))
    return float(np.sqrt(max(bits, 0.0)))
