"""How right a reward model is on what it has not seen: accuracy on pairs, with an interval clustered by prompt."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import polars as pl

from palaestra.errors import InputError
from palaestra.evaluation.intervals import Estimate, mean_interval
from palaestra.learning.reward_models.data import Labels, Preferences
from palaestra.learning.reward_models.reward_model import RewardModel

MOST = 2000
"""Pairs of labelled rows that are compared where no key says which belong together."""


def held_out(model: RewardModel, data: Preferences | Labels, *, level: float = 0.95) -> Estimate:
    """`Estimate` of a `RewardModel`'s accuracy on held-out `Preferences` or `Labels`: share of pairs in right order.

    Equal scores count half.
    Labels: pairs of one key with different labels; without a key, random ones. Pairs of one key are not independent, so
    that a single key has no interval. Without any pair, as of prompts with one answer each, it is unknown (NaN).

    Raises:
        InputError: labels have several heads.
    """
    pairs = data if isinstance(data, Preferences) else preferences_from_labels(data)
    if not len(pairs):
        return Estimate(math.nan, math.nan, math.nan, 0, 0, 0, "no pairs")
    found = model.agrees(pairs)
    key = np.arange(len(pairs)) if pairs.key is None else pairs.key
    known = np.isfinite(found)
    if pairs.key is not None and len(set(key[known].tolist())) == 1:
        return Estimate(float(found[known].mean()), math.nan, math.nan, int(known.sum()), 1, 1, "one key, no interval")
    task = [str(each) for each in key]
    trials = pl.DataFrame({"run": "0", "task": task, "trial": np.arange(len(pairs)), "score": found})
    return mean_interval(trials.with_columns(pl.col("score").fill_nan(None)), share=True, level=level)


def preferences_from_labels(labels: Labels, seed: int = 0) -> Preferences:
    """`Preferences` from `Labels` that differ, the larger one chosen: all pairs inside a key, or `MOST` random ones.

    None at all, where no two labels (of one key) differ.

    Raises:
        InputError: labels have several heads.
    """
    value = np.asarray(labels.value, float)
    if value.ndim > 1:
        raise InputError(f"labels have {value.shape[1]} heads, which have no order: compare one of them")
    if labels.key is None:
        at = np.random.default_rng(seed).integers(len(labels), size=(MOST, 2))
    else:
        _, code = np.unique(labels.key, return_inverse=True)
        groups = np.split(np.argsort(code, kind="stable"), np.cumsum(np.bincount(code))[:-1])
        at = np.array([pair for part in groups for pair in combinations(part.tolist(), 2)], np.int64).reshape(-1, 2)
    at = at[~np.isnan(value[at]).any(1)]
    at = at[value[at[:, 0]] != value[at[:, 1]]]
    first = value[at[:, 0]] > value[at[:, 1]]
    chosen, rejected = np.where(first, at[:, 0], at[:, 1]), np.where(first, at[:, 1], at[:, 0])
    return Preferences(
        labels.rows[chosen],
        labels.rows[rejected],
        reference=None if labels.reference is None else labels.reference[chosen],
        condition=None if labels.condition is None else labels.condition[chosen],
        key=None if labels.key is None else labels.key[chosen],
    )


def explained(model: RewardModel, labels: Labels) -> list[float]:
    """List with the R² of each head of a `RewardModel` on held-out `Labels`; NaN where labels do not vary.

    R² = 1 - squared error / variance.

    Raises:
        InputError: the model has another number of heads than there are targets.
    """
    given = None if labels.condition is None else labels.condition.drop("weights", strict=False)  # all heads are wanted
    given = given if given is not None and given.width else None
    found = model.score(labels.rows, reference=labels.reference, condition=given).to_numpy().reshape(len(labels), -1)
    value = np.asarray(labels.value, float).reshape(len(labels), -1)
    if found.shape != value.shape:
        wide = f"{found.shape[1]} of the model beside {value.shape[1]} of the labels"
        raise InputError(f"explained: {wide}, expected as many")
    known = ~np.isnan(value) & ~np.isnan(found)
    shares = []
    for column, (ours, theirs) in enumerate(zip(found.T, value.T, strict=True)):
        a, b = ours[known[:, column]], theirs[known[:, column]]
        spread = float(((b - b.mean()) ** 2).sum()) if len(b) else 0.0
        shares.append(1 - float(((a - b) ** 2).sum()) / spread if spread > 0 else float("nan"))
    return shares
