"""Splits a budget among agents by their scores ([23] ContestTrade, arXiv 2508.00554)."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from palaestra.errors import InputError, nearest

Allocation = Literal["positive", "top_k", "equal"]


def allocate(scores: np.ndarray, method: Allocation = "positive", *, most: int = 3) -> np.ndarray:
    """Array float64[..., agents] of shares by agents' scores: in proportion, "equal" or "top_k"; sums are 1 or 0.

    They sum to 0 if no score is above 0.

    positive: in proportion to what is above 0. top_k: equal, to the `most` best that are above 0. equal: to all.

    >>> allocate(np.array([0.5, -0.2, 1.5])).tolist(), allocate(np.array([-1.0, -2.0])).tolist()
    ([0.25, 0.0, 0.75], [0.0, 0.0])
    """
    if method not in get_args(Allocation):
        raise InputError(f"allocate: method={method!r}{nearest(str(method), get_args(Allocation))}")
    given = np.nan_to_num(np.asarray(scores, float), nan=-np.inf)
    raw = np.where(np.isfinite(given), np.maximum(given, 0.0), 0.0)
    if method == "equal":
        raw = np.ones_like(raw)
    if method == "top_k":
        place = (-raw).argsort(-1, kind="stable").argsort(-1, kind="stable")
        raw = ((place < most) & (raw > 0)).astype(float)
    total = raw.sum(-1, keepdims=True)
    return np.asarray(raw / np.where(total > 0, total, 1.0))
