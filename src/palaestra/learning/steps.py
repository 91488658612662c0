"""Metrics of the steps of an update: losses, norms, and those that terms report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from palaestra.learning.protocol import Metrics

Place = tuple[str, str, str]
"""Term, name of a number, and per what it is: as `MicroBatch.log` has it."""


class Taken(NamedTuple):
    """Result of a step's backward pass: loss, gradient norm (None: nothing to learn from), tokens, terms' metrics.

    seen: tokens of the rows that went through the terms, without those that were left out because they have no credit.
    """

    loss: float
    norm: float | None
    tokens: int
    seen: int
    said: Mapping[Place, float]


def summed(logged: Iterable[tuple[str, str, str, Any]]) -> dict[Place, float]:
    """Sums of the terms' logged tuples (term, name, per, value): dict {(term, name, per): sum}."""
    said: dict[Place, float] = {}
    for key, name, per, value in logged:
        said[key, name, per] = said.get((key, name, per), 0.0) + float(value)
    return said


def metrics_of(taken: Sequence[Taken], only: str | None = None) -> Metrics:
    """Dict {name: value} of the terms' metrics over the steps `taken`, each per step, token, seen token or update.

    The mean over terms where two use one name.
    """
    found: dict[str, list[float]] = {}
    for key, name, per in dict.fromkeys(place for step in taken for place in step.said):
        if only is None or key == only:
            total = sum(step.said.get((key, name, per), 0.0) for step in taken)
            steps, tokens = sum(step.norm is not None for step in taken), sum(step.tokens for step in taken)
            seen = sum(step.seen for step in taken)
            found.setdefault(name, []).append(total / {"step": steps, "token": tokens, "seen": seen, "update": 1}[per])
    return {name: int(sum(values)) if name == "clamped" else float(np.mean(values)) for name, values in found.items()}
