"""A law of team success, and the architecture that it advises for a new task ([79], arXiv 2512.08296).

A linear model of standardised properties of tasks and architectures with products of pairs, above all how good one
agent is times how many there are. Left out: the paper's coefficients, which are those of its 260 configurations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import polars as pl

from palaestra.errors import InputError, need_columns


class ScalingLaw:
    """Scaling law of teams: ridge regression of `score` on `features` and products; a feature `members` as log(1 + n).

    Args:
        features: Columns of numbers.
        interactions: Pairs of features whose product is one more feature.
        ridge: Weight of the squared coefficients of standardised features.
    """

    def __init__(
        self, features: Sequence[str], interactions: Sequence[Sequence[str]] = (), *, ridge: float = 1e-3
    ) -> None:
        self.features, self.interactions = tuple(features), tuple((one, other) for one, other in interactions)
        for name in {each for pair in self.interactions for each in pair} - set(self.features):
            raise InputError(f"ScalingLaw: the interaction of {name!r}, which is no feature")
        self.ridge = ridge
        self._mean, self._scale, self._weights = np.zeros(0), np.ones(0), np.zeros(1)

    def fit(self, frame: pl.DataFrame, score: str = "success") -> ScalingLaw:
        """Fits the law to the rows of a table whose score and features are known; returns the law itself.

        Raises:
            MissingColumnError, InputError: a column is missing, or no row has all.
        """
        known = self._known(frame, score)
        if not len(known):
            raise InputError(f"ScalingLaw: no row has a {score!r} and all of {', '.join(self.features)}")
        raw = self._raw(known)
        self._mean, self._scale = raw.mean(0), np.maximum(raw.std(0), 1e-12)
        x = self._design(known)
        penalty = self.ridge * len(x) * np.eye(x.shape[1])
        penalty[0, 0] = 0.0
        self._weights = np.linalg.solve(x.T @ x + penalty, x.T @ known[score].cast(pl.Float64).to_numpy())
        return self

    def predict(self, frame: pl.DataFrame) -> np.ndarray:
        """Predicted score of each row, float64[rows]; NaN where a feature is unknown."""
        return np.asarray(self._design(frame) @ self._weights)

    @property
    def coefficients(self) -> dict[str, float]:
        """Dict of the weights of the standardised features by name; of a product `one*other`."""
        names = ["", *self.features, *(f"{one}*{other}" for one, other in self.interactions)]
        return dict(zip(names, self._weights.tolist(), strict=True))

    def held_out(self, frame: pl.DataFrame, by: str, score: str = "success") -> float:
        """R² of cross-validation: predictions for each value of `by` from a law fitted to all others."""
        known = self._known(frame, score)
        found = np.zeros(len(known))
        groups = known[by].to_numpy()
        for group in np.unique(groups):
            own = groups == group
            law = ScalingLaw(self.features, self.interactions, ridge=self.ridge)
            found[own] = law.fit(known.filter(~own), score).predict(known.filter(own))
        true = known[score].cast(pl.Float64).to_numpy()
        return float(1 - ((true - found) ** 2).sum() / ((true - true.mean()) ** 2).sum())

    def _known(self, frame: pl.DataFrame, score: str) -> pl.DataFrame:
        """The rows with a score and every feature."""
        need_columns("ScalingLaw", frame.columns, [score, *self.features])
        given = (pl.col(name).cast(pl.Float64).fill_nan(None).is_not_null() for name in (score, *self.features))
        return frame.filter(*given)

    def _raw(self, frame: pl.DataFrame) -> np.ndarray:
        need_columns("ScalingLaw", frame.columns, self.features)
        logs = [(pl.col(name) + 1).log() if name == "members" else pl.col(name) for name in self.features]
        return frame.select(logs).cast(pl.Float64).to_numpy()

    def _design(self, frame: pl.DataFrame) -> np.ndarray:
        plain = (self._raw(frame) - self._mean) / self._scale
        place = {name: at for at, name in enumerate(self.features)}
        products = [plain[:, place[one]] * plain[:, place[other]] for one, other in self.interactions]
        return np.column_stack([np.ones(len(plain)), plain, *products])


def advise(
    frame: pl.DataFrame,
    features: Sequence[str],
    interactions: Sequence[Sequence[str]] = (),
    *,
    by: Literal["law", "average"] = "law",
    tokens: float | None = None,
) -> pl.DataFrame:
    """Table of the best architecture for each task of null `success`, by a law fitted on `features`, or by averages.

    The averages are of success so far.

    Columns: task, architecture, expected; both null if of no architecture of the task anything is known: a feature is
    missing, or, by averages, it was never tried.

    Args:
        frame: Configurations: task, architecture, success (null: a new task), the features, and tokens of a run if a
            budget is given.
        features: As of `ScalingLaw`.
        interactions: As of `ScalingLaw`.
        by: Whether the law or the average decides.
        tokens: Budget that all architectures are compared at; what costs more is left out.

    Raises:
        MissingColumnError, InputError: A column is missing, or nothing is left within the budget.
    """
    need_columns("advise", frame.columns, ("task", "architecture", "success", *(("tokens",) if tokens else ())))
    rows = frame if tokens is None else frame.filter(pl.col("tokens") <= tokens)
    if not len(rows):
        raise InputError(f"advise: no configuration costs at most {tokens} tokens")
    known = rows.drop_nulls("success")
    if by == "law":
        worth = ScalingLaw(features, interactions).fit(known).predict(rows)
    else:
        means = dict(known.group_by("architecture").agg(pl.col("success").cast(pl.Float64).mean()).iter_rows())
        worth = np.array([means.get(name, np.nan) for name in rows["architecture"]])
    new = rows.with_columns(expected=pl.Series(worth).fill_nan(None)).filter(pl.col("success").is_null())
    new = new.sort("expected", descending=True, nulls_last=True, maintain_order=True)
    best = new.group_by("task", maintain_order=True).first()
    advised = pl.when(pl.col("expected").is_not_null()).then("architecture")
    return best.select("task", advised, "expected").sort("task")
