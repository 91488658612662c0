"""Does a system do the same thing twice? Consistency of outcomes, of what was done, and of what it used.

Formulas of HAL's reliability metrics (arXiv 2510.11977), per task and then averaged, so every number has its n and its
interval over tasks. Left out: embeddings of what was said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any, Literal

import numpy as np
import polars as pl

from palaestra.errors import InputError, nearest
from palaestra.evaluation.intervals import families, matrix, mean_of_cells

PARTS = ("outcome", "actions", "sequence", "resources")


def outcome_consistency(p: Any) -> np.ndarray:
    """Consistency of tasks' success rates p, elementwise (2p - 1)²: 1 if always or never, 0 at one half.

    >>> outcome_consistency([0.2, 0.5, 0.6, 1.0]).round(2).tolist()
    [0.36, 0.0, 0.04, 1.0]
    """
    return (2 * np.asarray(p, float) - 1) ** 2


def divergence(p: Sequence[float] | np.ndarray, q: Sequence[float] | np.ndarray) -> float:
    """Jensen-Shannon divergence, a float in bits in [0, 1], of two histograms (arrays of counts over the same bins).

    >>> round(divergence([2, 1, 1], [1, 1, 2]), 4)
    0.0613
    """
    a, b = (np.asarray(x, float) / np.sum(x) for x in (p, q))
    middle = (a + b) / 2

    def kl(x: np.ndarray) -> float:
        on = x > 0
        return float((x[on] * np.log2(x[on] / middle[on])).sum())

    return (kl(a) + kl(b)) / 2


def sequence_similarity(
    a: Sequence[Any], b: Sequence[Any], kind: Literal["levenshtein", "histogram"] = "levenshtein"
) -> float:
    """Similarity of two sequences of actions in [0, 1], by edit distance or by histograms; two empty ones have 1.

    levenshtein: 1 - edit distance / the longer length. histogram: 1 - Jensen-Shannon divergence of what was used.

    >>> sequence_similarity("abcd", "abd"), round(sequence_similarity("aabc", "abcc", "histogram"), 4)
    (0.75, 0.9387)
    """
    if kind not in ("levenshtein", "histogram"):
        raise InputError(f"sequence_similarity: kind={kind!r}{nearest(str(kind), ('levenshtein', 'histogram'))}")
    if not len(a) or not len(b):
        return float(len(a) == len(b))
    names = {name: code for code, name in enumerate(dict.fromkeys([*a, *b]))}
    x, y = (np.array([names[name] for name in each]) for each in (a, b))
    if kind == "histogram":
        return 1 - divergence(np.bincount(x, minlength=len(names)), np.bincount(y, minlength=len(names)))
    steps = np.arange(len(y) + 1)
    row = steps.copy()
    for i, code in enumerate(x, start=1):  # a row at a time; insertions are a running minimum
        best = np.minimum(row[1:] + 1, row[:-1] + (y != code))
        row = np.minimum.accumulate(np.concatenate([[i], best]) - steps) + steps
    return 1 - float(row[-1]) / max(len(x), len(y))


def resource_consistency(values: Any) -> float:
    """exp(-sd / mean), ddof 1, of the amounts of a resource that a task's trials used; NaN below two trials.

    >>> round(resource_consistency([1, 2, 3]), 4)
    0.6065
    """
    x = np.asarray([v for v in values if v is not None], float)
    x = x[np.isfinite(x)]
    if len(x) < 2 or x.mean() == 0:
        return 1.0 if len(x) > 1 and not x.any() else math.nan
    return math.exp(-x.std(ddof=1) / x.mean())


def consistency(
    trials: pl.DataFrame,
    *,
    actions: str | None = None,
    resources: Sequence[str] = ("cost", "turns", "tokens_in", "tokens_out"),
    level: float = 0.95,
) -> pl.DataFrame:
    """Table: consistency of each system over the trials of a task, by part: `system, part, mean, low, high, n, tasks`.

    outcome: (2p - 1)² of the success rate. actions, sequence: mean over pairs of *successful* trials of what they did,
    as histograms and in order (`sequence_similarity`). resources: exp(-mean coefficient of variation) over those
    columns of `resources` that are known. overall: outcome, the mean of actions and sequence, and resources in equal
    thirds; what is unknown is left out and the rest weighs more. Tasks with one trial leave every part.

    actions: a column of lists, e.g. the tools called in each trial; None: no trajectory parts.

    The plug-in (2p̂ - 1)² exceeds the truth by 4 p(1-p)/n on average; as published, it is not corrected.
    The intervals are of what this number is on average; simulated with 30 tasks x 4 trials, they cover 94-95 %.
    """
    cell = ["system", "run", "task"]
    used = [name for name in resources if name in trials.columns]
    values = {name: pl.col(name).cast(pl.Float64).fill_nan(None) for name in used}
    many = trials.filter(pl.len().over(cell) > 1)
    table = many.group_by(cell, maintain_order=True).agg(
        pl.when(pl.col("success").count() > 1).then((2 * pl.col("success").mean() - 1) ** 2).alias("outcome"),
        *[
            pl.when(x.count() > 1)
            .then(pl.when(x.mean() == 0).then(0.0).otherwise(x.std(ddof=1) / x.mean()))
            .alias(f"_{name}")
            for name, x in values.items()
        ],
        *[pl.col(name).first() for name in ["cluster"] if name in trials.columns],
        trials=pl.len(),
        did=pl.col(actions).filter(pl.col("success").fill_null(False)) if actions else pl.lit(None),
    )
    variation = pl.mean_horizontal([f"_{name}" for name in used]) if used else pl.lit(None, pl.Float64)
    similar = [_similarity(did) if actions else (math.nan, math.nan) for did in table["did"].to_list()]
    pair = np.array(similar, float).reshape(-1, 2)
    table = table.with_columns(
        pl.Series("actions", pair[:, 0]).fill_nan(None),
        pl.Series("sequence", pair[:, 1]).fill_nan(None),
        resources=(-variation).exp(),
    )
    trajectory = (pl.col("actions") + pl.col("sequence")) / 2
    table = table.with_columns(overall=pl.mean_horizontal("outcome", trajectory, "resources"))
    rows = []
    for (system,), part in table.sort(cell).group_by("system", maintain_order=True):
        for name in (*PARTS, "overall"):
            known = part.filter(pl.col(name).is_not_null())
            cell_values, n = matrix(known, name), int(known["trials"].sum())
            mean = mean_of_cells(
                cell_values, n=n, groups=families(known), level=level, resamples=0
            )  # no tails in [0, 1]
            rows.append((system, name, mean.mean, mean.low, mean.high, mean.n, known["task"].n_unique()))
    schema: dict[str, Any] = {
        "system": pl.String,
        "part": pl.String,
        "mean": pl.Float64,
        "low": pl.Float64,
        "high": pl.Float64,
    }
    schema |= {"n": pl.Int64, "tasks": pl.Int64}
    result = pl.DataFrame(rows, schema=schema, orient="row")
    return result.with_columns(pl.col("mean", "low", "high").fill_nan(None)).with_columns(
        pl.col("low", "high").clip(0, 1)
    )


def _similarity(did: Sequence[Sequence[Any] | None]) -> tuple[float, float]:
    """Mean over pairs, as histograms and in order."""
    pairs = list(combinations([each for each in did if each is not None], 2))
    if not pairs:
        return math.nan, math.nan
    kinds: tuple[Literal["histogram", "levenshtein"], ...] = ("histogram", "levenshtein")
    first, second = (float(np.mean([sequence_similarity(a, b, kind) for a, b in pairs])) for kind in kinds)
    return first, second
