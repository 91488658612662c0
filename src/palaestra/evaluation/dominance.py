"""Several objectives at once: dominance, frontiers, hypervolume, expected utility, and what a success costs.

Cost against score is the case of two; vector rewards are the general one. Left out: approximate hypervolume for more
than a handful of objectives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
import scipy

from palaestra.errors import InputError, MissingColumnError, nearest
from palaestra.evaluation.intervals import Estimate


def nondominated(points: Any) -> np.ndarray:
    """Which points are Pareto-optimal, bool[n] of float64[n, d], larger being better; of equal points the first counts.

    >>> nondominated([[1, 3], [2, 2], [2, 1], [3, 0]]).tolist()
    [True, True, False, True]
    """
    points = _points(points)
    n, d = points.shape
    order = np.lexsort(np.column_stack([np.arange(n), -points[:, ::-1]]).T)
    keep = np.zeros(n, bool)
    if d <= 2:  # sorted by the first, a point counts iff its last coordinate is a new maximum
        last = points[order, -1]
        before = np.concatenate([[-np.inf], np.maximum.accumulate(last)[:-1]])
        first_only = order[:1] if d == 1 else order[last > before]
        keep[first_only] = True
        return keep
    left = order
    while len(left):  # the first of the sorted rest is never beaten; it removes all that it beats
        best = points[left[0]]
        keep[left[0]] = True
        left = left[(points[left] > best).any(1)]
    return keep


def pareto(frame: pl.DataFrame, *, min: Sequence[str] = (), max: Sequence[str] = ()) -> pl.DataFrame:
    """The Pareto-optimal rows of a table: small in columns `min`, large in `max`. Rows with a null in one are left out.

    >>> frame = pl.DataFrame({"s": list("abcdef"), "cost": [1, 2, 4, 5, 10, 2], "score": [.3, .5, .55, .54, .8, .45]})
    >>> "".join(pareto(frame, min=["cost"], max=["score"])["s"])
    'abce'
    """
    names = [*min, *max]
    for name in names:
        if name not in frame.columns:
            raise MissingColumnError(f"pareto: the table has no column {name!r}{nearest(name, frame.columns)}")
    if not names:
        raise InputError("pareto: name the columns to keep small (min=) or large (max=)")
    known = frame.filter(pl.all_horizontal(pl.col(name).is_not_null() for name in names))
    signs = np.array([-1.0] * len(min) + [1.0] * len(max))
    return known.filter(pl.Series(nondominated(known.select(names).to_numpy().astype(float) * signs)))


def frontier(frame: pl.DataFrame, *, cost: str = "cost", score: str = "score") -> pl.DataFrame:
    """The table sorted by cost, with bools `frontier` (Pareto-optimal in cost and score) and `hull` (concave hull).

    frontier: cost up, score down, keep what is strictly better. hull: on the upper concave hull of the frontier. Rows
    of equal cost and score are on it together. A row without a cost or a score is on neither: null is not free.

    >>> frontier(pl.DataFrame({"cost": [1, 1, 2], "score": [0.5, 0.5, 0.4]}))["frontier"].to_list()
    [True, True, False]
    """
    ranked = frame.with_row_index("_row").sort(cost, score, descending=[False, True], nulls_last=True)
    known = ranked.filter(pl.col(cost).is_not_null() & pl.col(score).is_not_null())
    best = known.filter(pl.Series(nondominated(known.select(-pl.col(cost).cast(float), score).to_numpy())))
    x, y = (best[name].to_numpy().astype(float) for name in (cost, score))
    hull: list[int] = []
    for i in range(len(x)):
        while len(hull) > 1 and (y[i] - y[hull[-2]]) * (x[hull[-1]] - x[hull[-2]]) >= (y[hull[-1]] - y[hull[-2]]) * (
            x[i] - x[hull[-2]]
        ):
            hull.pop()
        hull.append(i)
    rows, corners = (known.join(each, on=[cost, score], how="semi")["_row"] for each in (best, best[hull]))
    return ranked.with_columns(
        frontier=pl.col("_row").is_in(rows.to_list()), hull=pl.col("_row").is_in(corners.to_list())
    ).drop("_row")


def hypervolume(points: Any, reference: Any) -> float:
    """Exact volume between point `reference` and the region that float64[n, d] dominates, larger being better.

    By slices: sorted along the last objective, the volume is the sum of heights times the volume of what reaches that
    high, one dimension less; two dimensions are a sum over the staircase.

    >>> hypervolume([[1, 3], [2, 2], [3, 1]], [0, 0])
    6.0
    """
    points = _points(points)
    reference = np.asarray(reference, float)
    if reference.shape != (points.shape[1],):
        raise InputError(f"hypervolume: a reference of shape {reference.shape} for {points.shape[1]} objectives")
    return _volume(np.maximum(points - reference, 0.0))


def _volume(points: np.ndarray) -> float:
    points = points[(points > 0).all(1)]
    points = points[nondominated(points)] if len(points) else points
    if not len(points):
        return 0.0
    points = points[np.argsort(-points[:, -1], kind="stable")]
    heights = points[:, -1] - np.append(points[1:, -1], 0.0)
    if points.shape[1] == 1:
        return float(points[0, 0])
    if points.shape[1] == 2:
        return float((heights * np.maximum.accumulate(points[:, 0])).sum())
    if points.shape[1] == 3:
        return float(heights @ _areas(points[:, :2]))
    return float(sum(h * _volume(points[: i + 1, :-1]) for i, h in enumerate(heights) if h > 0))


def _areas(points: np.ndarray) -> np.ndarray:
    """Area that the first i + 1 points dominate above 0, for every i: the staircases of all of them at once."""
    n = len(points)
    order = np.argsort(-points[:, 1], kind="stable")
    x, y = points[order].T
    inside = order[None, :] <= np.arange(n)[:, None]
    reach = np.maximum.accumulate(np.where(inside, x, 0.0), axis=1)
    return np.asarray(reach @ (y - np.append(y[1:], 0.0)))


def scalarise(reward: Any, weights: Any = None, *, utility: Callable[[np.ndarray], np.ndarray] | None = None) -> Any:
    """float64[..., d] -> float64[...]: the weighted sum, or a utility of the whole vector (e.g. `lambda v: v.min(-1)`).

    weights: float64[d], or float64[m, d] for float64[..., m]. Raises `InputError` unless exactly one of both is given.
    """
    if (weights is None) == (utility is None):
        raise InputError("scalarise: give either weights or a utility")
    values = np.asarray(reward, float)
    return utility(values) if utility is not None else values @ np.asarray(weights, float).T


def simplex_weights(objectives: int, number: int, *, seed: int = 0) -> np.ndarray:
    """Weight vectors float64[number, objectives], uniform on the simplex; two objectives: equally spaced."""
    if objectives == 2:
        first = np.linspace(0, 1, number)
        return np.column_stack([first, 1 - first])
    return np.asarray(np.random.default_rng(seed).dirichlet(np.ones(objectives), number))


def eum(points: Any, weights: Any, *, utility: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None) -> float:
    """Expected utility: mean over weights [m, d] of the best utility in a set of points [n, d], max_p p · w by default.

    >>> eum([[1, 0], [0, 1]], [[1, 0], [0.5, 0.5], [0, 1]]).__round__(4)
    0.8333
    """
    points, weights = _points(points), np.asarray(weights, float)
    value = points @ weights.T if utility is None else utility(points[:, None, :], weights[None])
    return float(np.max(value, axis=0).mean())


def cost_per_success(trials: pl.DataFrame, *, cost: str = "cost", level: float = 0.95) -> pl.DataFrame:
    """Table per system: total cost of its trials, failures included, over its number of successes, with an interval.

    Columns: system, cost_per_success, low, high, cost, successes, n, tasks, unknown.

    Σ cost / Σ success over the trials where both are known. The interval is Student's t for the logarithm of the
    ratio, with the delta method over tasks, or clusters of them (trials of one task and of several runs stay together);
    null without any success. unknown: trials that are left out because their cost is not known.
    """
    rows = []
    unit = "cluster" if "cluster" in trials.columns else "task"
    for (system,), table in trials.sort("system").group_by("system", maintain_order=True):
        both = {"s": pl.col("success").cast(float).fill_nan(None), "c": pl.col(cost).cast(float).fill_nan(None)}
        known = table.select(*{"task", unit}, **both).drop_nulls()
        sums = known.group_by(unit, maintain_order=True).agg(pl.col("s", "c").sum())
        s, c, tasks = sums["s"].to_numpy(), sums["c"].to_numpy(), len(sums)
        found = Estimate(math.nan, math.nan, math.nan, len(known), tasks, 1, f"log ratio, clustered by {unit}")
        if s.sum() > 0:
            ratio = float(c.sum() / s.sum())
            low = high = math.nan
            if tasks > 1 and ratio > 0:
                error = math.sqrt(tasks / (tasks - 1) * ((c / c.sum() - s / s.sum()) ** 2).sum())
                margin = float(scipy.stats.t.ppf((1 + level) / 2, tasks - 1)) * error
                low, high = ratio * math.exp(-margin), ratio * math.exp(margin)
            found = Estimate(ratio, low, high, len(known), tasks, 1, found.method)
        unknown = len(table) - len(known)
        rows.append(
            (
                system,
                found.mean,
                found.low,
                found.high,
                c.sum(),
                int(s.sum()),
                found.n,
                known["task"].n_unique(),
                unknown,
            )
        )
    names = ["system", "cost_per_success", "low", "high", "cost", "successes", "n", "tasks", "unknown"]
    return pl.DataFrame(rows, schema=names, orient="row").with_columns(
        pl.col("cost_per_success", "low", "high").fill_nan(None)
    )


def _points(points: Any) -> np.ndarray:
    array = np.asarray(points, float)
    if array.ndim != 2 or not np.isfinite(array).all():
        raise InputError(f"points must be finite numbers [n, objectives], not an array of shape {array.shape}")
    return array
