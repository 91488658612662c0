"""What each factor of a design does to an outcome, where not every combination was played (GLEE, arXiv 2410.05254).

A linear model with interactions predicts every cell, so factors are compared over all cells alike and not over those
that happen to be filled. Left out: mixed models; clusters enter by their sandwich.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product

import numpy as np
import polars as pl
import scipy

from palaestra.errors import InputError, need_columns


def effects(
    table: pl.DataFrame, value: str, factors: Sequence[str], *, cluster: str | None = None, level: float = 0.95
) -> pl.DataFrame:
    """Table: effect on `value` of each level of `factors` against its first, in a sparse design, with interval and p.

    The first is the smallest number, or the first by name.

    The effect is the mean of the level minus that of the first, over all cells.

    Columns: factor, level, against, effect, low, high, p.

    Least squares with all factors and their pairs; where the data cannot tell two terms apart, the shortest solution is
    taken. The standard errors are robust (HC1), by `cluster` if there is one (a pair of players; CR1), with Student's t
    on rows less terms, or clusters less one if those are fewer; a row without a cluster is its own. NaN: too few rows.
    Rows without a value or a factor are left out.

    Raises:
        InputError: a factor has one level.
    """
    need_columns("effects", table.columns, (value, *factors, *([cluster] if cluster else [])))
    rows = table.with_columns(pl.col(value).cast(pl.Float64).fill_nan(None)).drop_nulls([value, *factors])
    levels = {name: _levels(rows[name]) for name in factors}
    for name, each in levels.items():
        if len(each) < 2:
            raise InputError(f"effects: factor {name!r} has {len(each)} level")
    places = {n: np.array([levels[n].index(x) for x in rows[n].cast(pl.String)]) for n in factors}
    x, y = _coded(places, levels), rows[value].to_numpy()
    inverse = np.linalg.pinv(x.T @ x)
    weights = inverse @ x.T @ y
    own = -1 - pl.int_range(pl.len())
    named = rows.select(pl.col(cluster).rank("dense").cast(pl.Int64).fill_null(own) if cluster else own).to_series()
    unit = named.rank("dense").to_numpy() - 1
    scores = np.zeros((int(unit.max()) + 1, x.shape[1]))
    np.add.at(scores, unit, x * (y - x @ weights)[:, None])
    clusters, left = len(scores), len(x) - int(np.linalg.matrix_rank(x))
    freedom = min(clusters - 1, left)
    factor = clusters * (len(x) - 1) / ((clusters - 1) * left) if freedom > 0 else float("nan")
    covariance = factor * inverse @ scores.T @ scores @ inverse
    cells = np.array(list(product(*(range(len(levels[name])) for name in factors))))
    every = _coded(dict(zip(factors, cells.T, strict=True)), levels)
    found = []
    for number, name in enumerate(factors):
        means = [every[cells[:, number] == place].mean(axis=0) for place in range(len(levels[name]))]
        for place, mean in enumerate(means[1:], start=1):
            contrast = mean - means[0]
            effect, error = float(contrast @ weights), float(np.sqrt((contrast @ covariance @ contrast).clip(0)))
            margin = scipy.stats.t.ppf((1 + level) / 2, freedom) * error
            p = 2 * scipy.stats.t.sf(abs(effect) / error, freedom) if error > 0 else float("nan")
            found.append((name, levels[name][place], levels[name][0], effect, effect - margin, effect + margin, p))
    return pl.DataFrame(found, schema=["factor", "level", "against", "effect", "low", "high", "p"], orient="row")


def _levels(factor: pl.Series) -> list[str]:
    """Numbers in their order, others in that of their names."""
    ordered = factor if factor.dtype.is_numeric() else factor.cast(pl.String)
    return ordered.unique().sort().cast(pl.String).to_list()


def _coded(places: dict[str, np.ndarray], levels: dict[str, list[str]]) -> np.ndarray:
    """Columns of a constant, of each level after the first, and of their products by pairs of factors."""
    own = {n: np.eye(len(levels[n]))[at][:, 1:] - 1 / len(levels[n]) for n, at in places.items()}
    size = len(next(iter(places.values())))
    pairs = [(own[a][:, :, None] * own[b][:, None, :]).reshape(size, -1) for a, b in combinations(own, 2)]
    return np.concatenate([np.ones((size, 1)), *own.values(), *pairs], axis=1)
