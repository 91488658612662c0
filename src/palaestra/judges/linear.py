"""A linear scorer that goes on from what it was: the smallest reward model that can be refitted beside a policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl

from palaestra.algebra.registry import load_object
from palaestra.errors import InputError, MissingColumnError
from palaestra.judges.base import SCORERS

Features = Callable[[pl.DataFrame, pl.DataFrame | None, pl.DataFrame | None], np.ndarray]
"""Rows, reference and condition of a scorer to float64[rows, features]."""


@SCORERS.register()
class online_linear:
    """w·x + b, x the features of a row, moved by Bradley-Terry pairs from where it stood.

    `fit` minimises mean -log σ(w·(x_chosen - x_rejected)) + inertia/2·|w - w_old|²: w_old is what it was before, so
    that one call is one step of co-training, and the same for any order of the pairs. Pairs do not move b; `fit` puts 0
    half way between the mean scores of both sides, so that σ(score) says which side a row is on.

    Args:
        features: a column of lists of one length, or `module:function` of (rows, reference, condition) to
            float64[rows, d]. weights, bias: at the start; weights default to 0. inertia: > 0.

    Raises:
        InputError: inertia is not above 0; there is no pair; weights are not as many as features.
    """

    name = "online_linear"

    def __init__(
        self,
        features: str | Features = "features",
        *,
        weights: Sequence[float] | None = None,
        bias: float = 0.0,
        inertia: float = 0.1,
    ) -> None:
        if not inertia > 0:
            raise InputError(f"online_linear: inertia={inertia} must be above 0")
        self.column = features if isinstance(features, str) and ":" not in features else None
        self.of: Features | None = None
        if self.column is None:
            self.of = load_object(features, "features") if isinstance(features, str) else features
        self.weights = None if weights is None else np.asarray(weights, float)
        self.bias, self.inertia = float(bias), float(inertia)

    def score(
        self, rows: pl.DataFrame, *, reference: pl.DataFrame | None = None, condition: pl.DataFrame | None = None
    ) -> pl.Series:
        """w·x + b; null where a feature is missing."""
        x = self._features(rows, reference, condition)
        return pl.Series("score", x @ self._weights(x) + self.bias, nan_to_null=True)

    def fit(
        self,
        rows: pl.DataFrame,
        pairs: pl.DataFrame,
        *,
        reference: pl.DataFrame | None = None,
        condition: pl.DataFrame | None = None,
    ) -> dict[str, float]:
        """Move by the pairs of these rows; a pair's criterion, if it has one, is the condition of both sides.

        Pairs count by their weight; ties and pairs with a missing feature are left out. Returns how many pairs took
        part, the share of them whose chosen side was ahead before, `accuracy`, and the mean loss before.
        """
        pairs = pairs.filter(~pl.col("tie"))
        sides = [self._side(rows, pairs, side, reference, condition) for side in ("chosen", "rejected")]
        known = ~np.isnan(sides[0] + sides[1]).any(axis=1)
        one, other = (each[known] for each in sides)
        if not len(one):
            raise InputError("online_linear: no pair to fit; keep it as it is for now")
        weight = pairs["weight"].fill_null(1.0).to_numpy()[known]
        weight, gap, old = weight / weight.sum(), one - other, self._weights(one)
        lead = gap @ old
        measured = {
            "pairs": float(len(gap)), "accuracy": float((lead > 0).mean()),
            "pair_loss": float(weight @ np.logaddexp(0.0, -lead)),
        }  # fmt: skip
        self.weights = self._minimise(gap, weight, old)
        self.bias = -float(weight @ ((one + other) @ self.weights)) / 2
        return measured

    def _minimise(self, gap: np.ndarray, weight: np.ndarray, old: np.ndarray) -> np.ndarray:
        """Newton's method with halving; the objective is strictly convex."""

        def loss(w: np.ndarray) -> float:
            return float(weight @ np.logaddexp(0.0, -gap @ w) + self.inertia / 2 * ((w - old) ** 2).sum())

        w = old.copy()
        for _ in range(100):
            chance = np.exp(-np.logaddexp(0.0, gap @ w))
            slope = -gap.T @ (weight * chance) + self.inertia * (w - old)
            if np.abs(slope).max() < 1e-10:
                break
            curvature = gap.T @ (gap * (weight * chance * (1 - chance))[:, None]) + self.inertia * np.eye(len(w))
            step, size = np.linalg.solve(curvature, slope), 1.0
            while loss(w - size * step) > loss(w) and size > 1e-8:
                size /= 2
            w = w - size * step
        return w

    def _side(
        self, rows: pl.DataFrame, pairs: pl.DataFrame, side: str, reference: pl.DataFrame | None,
        condition: pl.DataFrame | None,
    ) -> np.ndarray:  # fmt: skip
        at = pairs[side].to_numpy()
        if pairs["criterion"].null_count() < pairs.height:
            given: pl.DataFrame | None = pairs.select("criterion")
        else:
            given = None if condition is None else condition[at]
        return self._features(rows[at], None if reference is None else reference[at], given)

    def _features(
        self, rows: pl.DataFrame, reference: pl.DataFrame | None, condition: pl.DataFrame | None
    ) -> np.ndarray:
        if self.of is not None:
            return np.asarray(self.of(rows, reference, condition), float)
        if self.column not in rows.columns:
            raise MissingColumnError(f"online_linear: no column {self.column!r}; give features= a column or a function")
        return np.array(rows[self.column].to_list(), float).reshape(rows.height, -1)

    def _weights(self, x: np.ndarray) -> np.ndarray:
        if self.weights is None:
            self.weights = np.zeros(x.shape[1])
        if len(self.weights) != x.shape[1]:
            raise InputError(f"online_linear: {len(self.weights)} weights for {x.shape[1]} features")
        return self.weights

    def state_dict(self) -> dict[str, Any]:
        """Weights and bias."""
        return {"weights": None if self.weights is None else self.weights.copy(), "bias": self.bias}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        given = state["weights"]
        self.weights, self.bias = None if given is None else np.asarray(given, float).copy(), float(state["bias"])


_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBERS = {word: str(number) for number, word in enumerate(_WORDS)}


def overlap(rows: pl.DataFrame, reference: pl.DataFrame | None, condition: pl.DataFrame | None) -> np.ndarray:
    """How a response stands to a right answer, float64[rows, 3]: whether the right answer's words are all in it, the
    share of its words that are the right answer's, and log(1 + words). Numbers up to ten count as their digits.

    Raises:
        InputError: there is no reference.
    """
    if reference is None:
        raise InputError("overlap: needs a reference, a row with the right answer as `response` for each row")
    said, right = (_words(frame["response"]) for frame in (rows, reference))
    both = pl.DataFrame({"said": said, "right": right})
    found = both.select(
        pl.col("right").list.set_difference("said").list.len().eq(0).cast(pl.Float64),
        (pl.col("said").list.eval(pl.element()).list.set_intersection("right").list.len() / pl.col("said").list.len())
        .fill_nan(0.0)
        .alias("precision"),
        pl.col("said").list.len().cast(pl.Float64).log1p().alias("length"),
    )
    return found.fill_null(float("nan")).to_numpy()


def _words(texts: pl.Series) -> pl.Series:
    words = texts.cast(pl.String).str.to_lowercase().str.extract_all(r"\w+")
    return words.list.eval(pl.element().replace(_NUMBERS))
