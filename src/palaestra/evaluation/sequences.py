"""Sequences of choices: is a coin fair, does it remember, and where do two runs part?

For decisions in {0, 1}, one series per key: the reference is an independent coin of the same bias. Left out: more than
two choices (compare each with the rest), and dependence beyond runs and first order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
import scipy

from palaestra.errors import InputError, need_columns
from palaestra.evaluation.comparison import holm
from palaestra.evaluation.intervals import clopper_pearson, wilson


def sequence_tests(
    turns: pl.DataFrame,
    *,
    action: str = "action",
    by: Sequence[str] = ("system",),
    series: Sequence[str] = ("episode",),
    order: str = "turn",
    longest: int = 3,
    level: float = 0.95,
) -> pl.DataFrame:
    """Table of tests of bias and serial dependence of 0/1 actions in turns, a row per key `by` (arXiv 2501.16356).

    `n, share, low, high, uniform_p`: share of ones, exact (Clopper-Pearson, conservative) interval, exact test of 1/2.
    `alternation, alternation_low, alternation_high, pairs`: how often neighbours differ; Wilson's interval, its n
    divided by 1 + 2 x the correlation of neighbouring changes, which a biased coin has too.
    `runs_z, runs_p`: Wald and Wolfowitz's runs test, z = (R - μ)/s, μ = 2 n₁n₀/n + 1, s² = (μ-1)(μ-2)/(n-1), summed
    over series: positive means that it alternates too much. `markov_chi2, markov_p`: χ² of the 2x2 table of steps.
    `reversal_L, reversal_n_L`: how often it changes after a run of exactly L, L = 1 … `longest`: rising values are the
    gambler's fallacy.

    series: keys of one series inside `by`; independent one-shot calls are *one* series in the order in which they were
    made. Nothing is said (null) where nothing can be: a constant series has no runs test.

    Raises:
        InputError: an action is neither 0 nor 1.
    """
    keys = [*by, *series]
    need_columns("sequence_tests", turns.columns, (*keys, action, order))
    table = _chosen(turns.select(*dict.fromkeys([*keys, action, order])), action, "sequence_tests").sort(*keys, order)
    x = table["_x"].to_numpy()
    group, part = (table.select(pl.struct(names).rle_id()).to_series().to_numpy() for names in (by, keys))
    groups, parts = (int(ids[-1]) + 1 if len(ids) else 0 for ids in (group, part))
    first = np.diff(part, prepend=-1) != 0
    change = (np.diff(x, prepend=0) != 0) & ~first
    start = np.flatnonzero(first | change)
    length = np.arange(len(x)) - np.repeat(start, np.diff(start, append=len(x))) + 1  # of the run so far
    after = np.where(first, 0, np.roll(length, 1))  # of the run before this decision

    def per(ids: np.ndarray, what: np.ndarray, size: int = groups) -> np.ndarray:
        return np.bincount(ids, what, minlength=size)

    n, ones = np.bincount(group, minlength=groups), per(group, x)
    pairs, changes = per(group, ~first), per(group, change)
    each, won, runs = np.bincount(part, minlength=parts), per(part, x, parts), per(part, first | change, parts)
    low, high = clopper_pearson(ones, n, level=level)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = 2 * won * (each - won) / each + 1
        variance = (mean - 1) * (mean - 2) / (each - 1)
        usable, owner = variance > 0, group[first]
        z = per(owner[usable], (runs - mean)[usable]) / np.sqrt(per(owner[usable], variance[usable]))
        q = changes / pairs
        both = per(group[1:], (change[1:] & change[:-1]).astype(float)) / per(group[1:], ~first[1:] & ~first[:-1])
        spread = q * (1 - q)
        effective = pairs / np.where((spread > 0) & (both >= 0), np.fmax(1 + 2 * (both - q**2) / spread, 0.1), 1.0)
        around = wilson(q * effective, np.where(pairs > 0, effective, 1), level=level)
    step = [per(group, (np.roll(x, 1) == i) & (x == j) & ~first) for i in (0, 1) for j in (0, 1)]
    chi2 = _chi2(*step)
    numbers: dict[str, Any] = {
        "share": ones / n,
        "low": low,
        "high": high,
        "uniform_p": [scipy.stats.binomtest(int(k), int(m)).pvalue for k, m in zip(ones, n, strict=True)],
        "alternation": q,
        "alternation_low": np.where(pairs > 0, around[0], math.nan),
        "alternation_high": np.where(pairs > 0, around[1], math.nan),
        "runs_z": z,
        "runs_p": 2 * scipy.stats.norm.sf(np.abs(z)),
        "markov_chi2": chi2,
        "markov_p": scipy.stats.chi2.sf(chi2, 1),
    }
    counts = {"n": n, "pairs": pairs.astype(np.int64)}
    for k in range(1, longest + 1):
        counts[f"reversal_n_{k}"] = seen = per(group, after == k).astype(np.int64)
        changed = per(group, change & (after == k))
        numbers[f"reversal_{k}"] = np.where(seen > 0, changed / np.maximum(seen, 1), math.nan)
    found = [pl.Series(name, values, dtype=pl.Float64).fill_nan(None) for name, values in numbers.items()]
    return (
        table.filter(pl.Series(np.diff(group, prepend=-1) != 0))
        .select(*by, **{name: pl.Series(values) for name, values in counts.items()})
        .with_columns(found)
    )


def _chosen(turns: pl.DataFrame, action: str, what: str) -> pl.DataFrame:
    """The rows with an action, as 0 or 1 in `_x`."""
    table = turns.with_columns((cs.float() & cs.by_name(action)).fill_nan(None)).drop_nulls(action)
    x = table[action].cast(pl.Float64, strict=False)
    if (wrong := ~x.is_in([0.0, 1.0]).fill_null(False)).any():
        value = table[action].filter(wrong)[0]
        raise InputError(f"{what}: {action} {value!r} is neither 0 nor 1; e.g. (pl.col('action') == 'yes')")
    return table.with_columns(_x=x.cast(pl.Int64))


def _chi2(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Pearson's χ² of the table [[a, b], [c, d]], without correction; NaN if a margin is 0."""
    margins = (a + b) * (c + d) * (a + c) * (b + d)
    return np.where(margins > 0, (a + b + c + d) * (a * d - b * c) ** 2 / np.where(margins > 0, margins, 1), math.nan)


def share_differences(turns: pl.DataFrame, *, action: str = "action", by: str = "system") -> pl.DataFrame:
    """Table of pairwise tests if systems choose action 1 equally often: `system, other, difference, p, corrected`.

    p: two-sided test of two proportions, pooled; corrected by Holm over all pairs. Choices of a series that remembers
    are not independent: see `sequence_tests` first.

    Raises:
        InputError: an action is neither 0 nor 1.
    """
    need_columns("share_differences", turns.columns, (action, by))
    counts = _chosen(turns, action, "share_differences").group_by(by).agg(n=pl.len(), ones=pl.col("_x").sum()).sort(by)
    rows = []
    for (a, n, k), (b, m, j) in combinations(counts.iter_rows(), 2):
        pooled = (k + j) / (n + m)
        error = math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
        gap = k / n - j / m
        rows.append((a, b, gap, 2 * float(scipy.stats.norm.sf(abs(gap) / error)) if error > 0 else 1.0))
    table = pl.DataFrame(rows, schema=["system", "other", "difference", "p"], orient="row")
    return table.with_columns(corrected=pl.Series(holm(table["p"].to_list()), dtype=pl.Float64))


def first_divergence(a: Sequence[Any] | np.ndarray, b: Sequence[Any] | np.ndarray) -> float:
    """First position where sequences `a`, `b` differ, as a share of the shorter's length; 1 if none (arXiv 2602.07150).

    >>> first_divergence([5, 6, 7, 8], [5, 6, 9]), first_divergence([1, 2], [1, 2, 3])
    (0.6666666666666666, 1.0)
    """
    shorter = min(len(a), len(b))
    if not shorter:
        return 1.0
    apart = np.flatnonzero(np.asarray(a)[:shorter] != np.asarray(b)[:shorter])
    return float(apart[0] / shorter) if len(apart) else 1.0


def divergences(trials: pl.DataFrame, *, tokens: str) -> pl.DataFrame:
    """Table `system, task, divergence, pairs`: mean `first_divergence` of list column `tokens` over pairs of trials."""
    rows = []
    for (system, task), cell in trials.sort("system", "task").group_by("system", "task", maintain_order=True):
        lists = [np.asarray(each) for each in cell[tokens].drop_nulls().to_list()]
        pairs = [first_divergence(a, b) for i, a in enumerate(lists) for b in lists[i + 1 :]]
        if pairs:
            rows.append((system, task, float(np.mean(pairs)), len(pairs)))
    schema = {"system": pl.String, "task": pl.String, "divergence": pl.Float64, "pairs": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")
