"""Do reported numbers match: the truth, within a tolerance, and the code that is said to have made them.

For paper reproduction (PRBench [157], arXiv 2603.27646; abstract and secondary text) and research runs ([76]).
Left out: running the code; give what a re-run printed (`judges.programs` runs untrusted code contained).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.errors import InputError


def series_match(predicted: Any, truth: Any, *, rtol: float = 0.02, atol: float = 0.01) -> float:
    """Share of points with |predicted - truth| <= atol + rtol·|truth|; a point that is missing or not finite is wrong.

    >>> series_match([1.0, 2.03, 9.0], [1.0, 2.0, 3.0]).__round__(4)
    0.6667
    """
    expected = np.asarray(truth, float)
    if not expected.size or not np.isfinite(expected).all():
        raise InputError("series_match: the truth must be finite numbers, at least one")
    given = np.full(expected.shape, np.nan)
    found = np.asarray(predicted, float).ravel()[: expected.size]
    given.flat[: len(found)] = found
    with np.errstate(invalid="ignore"):
        return float((np.abs(given - expected) <= atol + rtol * np.abs(expected)).mean())


@dataclass(frozen=True)
class Rerun:
    """Result of `check_rerun`: reproduced or not, the largest |reported - re-run| (NaN: unknown), share that match."""

    reproduced: bool
    deviation: float
    match: float


def check_rerun(reported: Any, rerun: Any, *, rtol: float = 0.02, atol: float = 0.01) -> Rerun:
    """`Rerun`: whether reported numbers come out again from the same code, within tolerance; other lengths fail.

    Deterministic code must match in every point. A number that is right but does not come out of it is fabricated.
    """
    a, b = np.asarray(reported, float), np.asarray(rerun, float)
    if a.shape != b.shape or not a.size:
        return Rerun(False, math.nan, 0.0)
    match = series_match(a, b, rtol=rtol, atol=atol) if np.isfinite(b).all() else 0.0
    return Rerun(match == 1.0, float(np.abs(a - b).max()), match)


@dataclass(frozen=True)
class FreshSeeds:
    """Result of `check_fresh_seeds`: excess (reported - mean) / sd of the re-runs; p: share that reach it."""

    excess: float
    p: float
    runs: int


def check_fresh_seeds(reported: float, reruns: Sequence[float]) -> FreshSeeds:
    """`FreshSeeds` test whether score `reported` is too high for the scores of 2 or more re-runs with fresh seeds.

    p = (1 + re-runs that reach it) / (1 + re-runs): one re-run can never give less than 1/2, so it takes several.

    >>> found = check_fresh_seeds(3.0, [1.0, 2.0, 0.0, 1.0])
    >>> round(found.excess, 3), found.p
    (2.449, 0.2)
    """
    again = np.asarray(reruns, float)
    again = again[np.isfinite(again)]
    if len(again) < 2:
        raise InputError(f"check_fresh_seeds: {len(again)} re-runs; the spread of seeds needs at least 2")
    sd = float(again.std(ddof=1))
    excess = (reported - float(again.mean())) / sd if sd > 0 else math.nan
    return FreshSeeds(excess, float((1 + (again >= reported).sum()) / (1 + len(again))), len(again))
