"""How calm the training of a variant was: share of rows without credit, and spikes of the gradient's norm."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.interface.report.load import SeedRun

SPIKE = 5.0
"""A norm is a spike if it is more than so many median absolute deviations above the median of its seed and policy."""


@dataclass(frozen=True)
class TrainingHealth:
    """Data on training health: share of rows with zero credit, number of gradient spikes, number of iterations.

    zero_credit: mean over policies, iterations and seeds, weighted by rows; None if nothing was learned.

    spikes: iterations in which some policy's gradient norm was a spike. iterations: those of all seeds.
    """

    zero_credit: float | None
    spikes: int
    iterations: int


def health(seeds: Sequence[SeedRun]) -> TrainingHealth:
    """`TrainingHealth` over the `SeedRun`s of a variant from their metrics; spikes are found per seed and policy."""
    shares = [
        (policy["zero_credit"], policy.get("rows") or 1)
        for seed in seeds
        for row in seed.metrics
        for policy in row["policies"].values()
        if _is_number(policy.get("zero_credit"))
    ]
    rows = sum(weight for _, weight in shares)
    return TrainingHealth(
        zero_credit=sum(share * weight for share, weight in shares) / rows if rows else None,
        spikes=sum(len(set(_spiking(seed))) for seed in seeds),
        iterations=sum(len(seed.metrics) for seed in seeds),
    )


def spikes(norms: np.ndarray) -> np.ndarray:
    """Mask bool[n] of the norms that are spikes, above median + 5 · median |x - median| of those above 0.

    Where a norm is 0 nothing was learned; a run that has converged has many.

    >>> spikes(np.array([1.0, 1.1, 0.9, 1.0, 1.2, 9.0])).tolist()
    [False, False, False, False, False, True]
    """
    learned = norms[norms > 0]
    if not len(learned):
        return np.zeros(len(norms), bool)
    middle = np.median(learned)
    limit = middle + SPIKE * np.median(np.abs(learned - middle))
    return np.asarray(norms > limit + 1e-9 * abs(middle))


def _spiking(seed: SeedRun) -> Iterator[int]:
    for name in dict.fromkeys(name for row in seed.metrics for name in row["policies"]):
        known = [
            (row["iteration"], row["policies"][name]["grad_norm"])
            for row in seed.metrics
            if name in row["policies"] and _is_number(row["policies"][name].get("grad_norm"))
        ]
        if known:
            at, norms = zip(*known, strict=True)
            yield from (int(i) for i in np.array(at)[spikes(np.array(norms, float))])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
