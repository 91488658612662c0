"""Do those who judge agree beyond chance? Krippendorff's alpha and Cohen's kappa, with intervals over items."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np

from palaestra.errors import InputError
from palaestra.evaluation.intervals import Estimate
from palaestra.evaluation.scorers.groups import known

Level = Literal["nominal", "ordinal", "interval"]
Weights = Literal["linear", "quadratic"]
RESAMPLES = 1000
_BLOCK = 1 << 22


def krippendorff_alpha(
    ratings: Any,
    *,
    measure: Level = "nominal",
    units: Sequence[Any] | None = None,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """`Estimate` of Krippendorff's alpha of ratings[raters, items], with a bootstrap interval over items.

    1 - observed / expected disagreement.

    units: of each item what it has in common with others (a prompt); the bootstrap then draws those.

    ratings: float[raters, items], numbers of categories or values; NaN: not rated. An item with one rating leaves.
    measure: what two ratings are apart: "nominal" 0 or 1, "interval" (a - b)², "ordinal" the squared distance of their
    middle ranks among all ratings. A pair in an item of m ratings weighs 1/(m - 1), so that every rating counts once.
    1: perfect, 0: as by chance; NaN if all ratings are the same one. Source: Krippendorff (2011), Computing
    Krippendorff's Alpha-Reliability.

    Raises:
        InputError: no table of numbers, or no item with two ratings.

    >>> krippendorff_alpha([[1, 2, 3, 1], [1, 2, 3, 2]], resamples=0).mean.__round__(4)
    0.6667
    """
    known("krippendorff_alpha", "measure", measure, get_args(Level))
    table = np.asarray(ratings, float)
    if table.ndim != 2 or np.isinf(table).any():
        raise InputError(f"krippendorff_alpha: ratings of shape {table.shape}, expected finite [raters, items]")
    rated = np.isfinite(table).sum(0) > 1
    table, of = table[:, rated], _families(units, rated, "krippendorff_alpha")
    if not table.shape[1]:
        raise InputError("krippendorff_alpha: no item has two ratings; alpha compares ratings of the same item")
    seen = np.isfinite(table)
    values, codes = np.unique(table[seen], return_inverse=True)
    items = np.nonzero(seen)[1]
    counts = np.bincount(items * len(values) + codes, minlength=table.shape[1] * len(values)).astype(float)
    counts = counts.reshape(table.shape[1], len(values))
    alpha = float(_alpha(counts, np.ones((1, len(counts))), values, measure)[0])
    rng = np.random.default_rng(seed)
    size = int(of.max()) + 1
    step = max(1, _BLOCK // max(counts.size, 1))
    drawn = [np.empty(0)]
    for start in range(0, resamples, step):
        weight = rng.multinomial(size, np.full(size, 1 / size), min(step, resamples - start))[:, of]
        drawn.append(_alpha(counts, weight.astype(float), values, measure))
    low, high = _ends(np.concatenate(drawn), level)
    what = "items" if units is None else "units"
    return Estimate(alpha, low, high, int(seen.sum()), size, 1, f"bootstrap over {what}", caution=_few(size))


def _families(units: Sequence[Any] | None, kept: np.ndarray, what: str) -> np.ndarray:
    """int[kept items]: codes of the units, without any the item itself."""
    if units is None:
        return np.arange(int(kept.sum()))
    if len(units) != len(kept):
        raise InputError(f"{what}: {len(units)} units for {len(kept)} items; give one for each")
    return np.unique(np.asarray([str(unit) for unit in units])[kept], return_inverse=True)[1]


def _alpha(counts: np.ndarray, weight: np.ndarray, values: np.ndarray, measure: Level) -> np.ndarray:
    """float64[draws] of counts float64[items, values] and weights float64[draws, items]."""
    size = counts.sum(1)
    total = weight @ counts
    n = total.sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        if measure == "nominal":
            observed = weight @ ((size**2 - (counts**2).sum(1)) / (size - 1))
            expected = n**2 - (total**2).sum(1)
        else:
            place = np.broadcast_to(values, total.shape) if measure == "interval" else total.cumsum(1) - total / 2
            place = place - place.mean(1, keepdims=True)  # of large values the squares would cancel
            first, second = counts @ place.T, counts @ (place**2).T  # [items, draws]
            observed = (weight.T * 2 * (size[:, None] * second - first**2) / (size - 1)[:, None]).sum(0)
            expected = 2 * (n * (total * place**2).sum(1) - (total * place).sum(1) ** 2)
        return np.asarray(np.where(expected > 1e-12 * n**2, 1 - observed / expected * (n - 1), np.nan))


def cohen_kappa(
    a: Sequence[Any] | np.ndarray,
    b: Sequence[Any] | np.ndarray,
    *,
    weights: Weights | None = None,
    order: Sequence[Any] | None = None,
    units: Sequence[Any] | None = None,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """`Estimate` of Cohen's kappa of two judges, 1 - Σ w·observed / Σ w·expected, with a bootstrap interval.

    weights: None: w is 1 off the diagonal; "linear", "quadratic": |i - j| and its square, in steps between the sorted
    categories (of numbers 1, 2, 5 the steps are 1), as scikit-learn. order: all categories from the lowest to the
    highest; without it words are sorted by the alphabet, high before low, and `caution` says so. An item that one of
    them left out leaves. NaN if both always say the same one thing. units: of each item what it has in common with
    others (a prompt); the bootstrap then draws those.

    Raises:
        InputError: lengths differ, nothing was judged by both, weights of categories that have no order, or a category
            is not in `order`.

    >>> cohen_kappa([1, 1, 0, 0], [1, 0, 0, 0], resamples=0).mean
    0.5
    """
    if weights is not None:
        known("cohen_kappa", "weights", weights, get_args(Weights))
    if len(a) != len(b):
        raise InputError(f"cohen_kappa: {len(a)} and {len(b)} verdicts; give one of each per item, null where missing")
    kept = np.array([not (_missing(x) or _missing(y)) for x, y in zip(a, b, strict=True)], bool)
    pairs = [(x, y) for x, y, known_ in zip(a, b, kept, strict=True) if known_]
    if not pairs:
        raise InputError("cohen_kappa: no item was judged by both")
    names = {name: i for i, name in enumerate(_ordered({each for pair in pairs for each in pair}, weights, order))}
    sorted_words = weights is not None and order is None and len(names) > 2 and any(isinstance(x, str) for x in names)
    how = f"the weights take the order {', '.join(map(str, names))}; give another with order=" if sorted_words else ""
    k = len(names)
    cell = np.array([names[x] * k + names[y] for x, y in pairs])
    table = np.bincount(cell, minlength=k * k).astype(float)
    apart = np.abs(np.subtract.outer(np.arange(k), np.arange(k))).astype(float)
    w = apart > 0 if weights is None else apart ** (1 if weights == "linear" else 2)
    rng, size = np.random.default_rng(seed), len(pairs)
    if units is None:  # the table of a resample is a draw from the table
        draws = rng.multinomial(size, table / size, resamples)
    else:
        of = _families(units, kept, "cohen_kappa")
        size = int(of.max()) + 1
        counts = np.bincount(of * k * k + cell, minlength=size * k * k).reshape(size, k * k)
        draws = rng.multinomial(size, np.full(size, 1 / size), resamples) @ counts
    low, high = _ends(_kappa(draws.reshape(-1, k, k).astype(float), w), level)
    kappa = float(_kappa(table.reshape(1, k, k), w)[0])
    what = "items" if units is None else "units"
    caution = "; ".join(filter(None, (how, _few(size))))
    return Estimate(kappa, low, high, len(pairs), size, 1, f"bootstrap over {what}", caution=caution)


def _kappa(tables: np.ndarray, w: np.ndarray) -> np.ndarray:
    expected = tables.sum(2)[:, :, None] * tables.sum(1)[:, None, :]
    with np.errstate(invalid="ignore", divide="ignore"):
        top, bottom = (tables * w).sum((1, 2)) * tables.sum((1, 2)), (expected * w).sum((1, 2))
        return np.asarray(np.where(bottom > 0, 1 - top / bottom, np.nan))


def _ordered(seen: set[Any], weights: Weights | None, order: Sequence[Any] | None) -> list[Any]:
    """Categories in order; of those that cannot be compared any will do where steps between them do not count."""
    if order is not None:
        if left := sorted(map(repr, seen - set(order))):
            raise InputError(f"cohen_kappa: {left[0]} is not in order={list(order)}")
        return list(dict.fromkeys(order))
    try:
        return sorted(seen)
    except TypeError:
        if weights is None:
            return sorted(seen, key=lambda each: (type(each).__name__, str(each)))
        kinds = ", ".join(sorted({type(each).__name__ for each in seen}))
        raise InputError(f"cohen_kappa: weights={weights!r} for verdicts without an order: {kinds}") from None


def _missing(x: Any) -> bool:
    return x is None or (isinstance(x, float) and math.isnan(x))


def _ends(draws: np.ndarray, level: float) -> tuple[float, float]:
    draws = draws[np.isfinite(draws)]
    if not len(draws):
        return math.nan, math.nan
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _few(items: int) -> str:
    return f"{items} items: intervals of so few are rough" if items < 10 else ""
