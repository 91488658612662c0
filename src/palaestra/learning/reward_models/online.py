"""`online_linear`: a linear reward that goes on from what it was, the smallest that can be refitted beside a policy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from palaestra.errors import InputError
from palaestra.foundation.files import read_object, write_json
from palaestra.foundation.progress import Report
from palaestra.foundation.registry import load_object
from palaestra.learning.reward_models.data import Labels, Preferences, matrix, series, together
from palaestra.learning.reward_models.features import Features
from palaestra.learning.reward_models.reward_model import REWARD_MODELS, RewardModel, keep_options


@REWARD_MODELS.register("online_linear")
class OnlineLinearReward(RewardModel):
    """Linear reward model w·x + b that each `fit` moves from its last weights, by Bradley-Terry pairs.

    `fit` minimises mean -log σ(w·(x_chosen - x_rejected)) + inertia/2·|w - w_old|²: w_old is what it was before, so
    that one call is one step of co-training, and the same for any order of the pairs. Pairs do not move b; `fit` puts 0
    half way between the mean scores of both sides, so that σ(score) says which side a row is on.

    Args:
        features: a column of lists of one length, or `module:function` of (rows, reference, condition) to
            float64[rows, d]. weights, bias: at the start; weights default to 0. inertia: > 0.

    Raises:
        InputError: inertia is not above 0.
    """

    kind = "online_linear"

    def __init__(
        self,
        features: str | Features = "features",
        *,
        weights: Sequence[float] | None = None,
        bias: float = 0.0,
        inertia: float = 0.1,
        name: str = "online_linear",
    ) -> None:
        keep_options(self, locals())
        if not inertia > 0:
            raise InputError(f"online_linear: inertia={inertia} must be above 0")
        self.features, self.name, self.inertia = features, name, float(inertia)
        of = load_object(features, "features") if isinstance(features, str) and ":" in features else features
        self.of: Features | None = None if isinstance(of, str) else of
        self.weights = None if weights is None else np.asarray(weights, float)
        self.bias = float(bias)

    def fit(  # type: ignore[override]
        self,
        data: Preferences | Labels,
        *,
        seed: int = 0,
        checkpoints: str | Path | None = None,
        progress: bool | Report = False,
    ) -> dict[str, float]:
        """Move the weights by pairs; those with a missing feature are left out. Nothing is random.

        Returns how many took part, the share of them whose chosen side was ahead before, and the mean loss before.

        Raises:
            InputError: there is no pair; or not as many weights as features.
        """
        if not isinstance(data, Preferences):
            raise InputError(f"online_linear: learns from Preferences, found {type(data).__name__}")
        rows, reference, condition = data.both()
        x = self._x(rows, reference, condition)
        one, other = x[: len(data)], x[len(data) :]
        known = ~np.isnan(one + other).any(axis=1)
        if not known.any():
            raise InputError("online_linear: no pair to learn from; leave it as it is")
        one, other = one[known], other[known]
        weight = np.ones(len(one)) if data.weight is None else np.asarray(data.weight, float)[known]
        weight, gap, old = weight / weight.sum(), one - other, self._weights(one)
        lead = gap @ old
        measured = {
            "rows": float(len(gap)),
            "accuracy": float((lead > 0).mean()),
            "loss": float(weight @ np.logaddexp(0.0, -lead)),
        }
        self.weights = self._minimise(gap, weight, old)
        self.bias = -float(weight @ ((one + other) @ self.weights)) / 2
        return measured

    def score(
        self, rows: pl.DataFrame, *, reference: pl.DataFrame | None = None, condition: pl.DataFrame | None = None
    ) -> pl.Series:
        """Scores w·x + b; null where a feature is missing."""
        together(rows, reference=reference, condition=condition)
        x = self._x(rows, reference, condition)
        known = ~np.isnan(x).any(axis=1)
        return series(self.name, x[known] @ self._weights(x) + self.bias, known)

    def write(self, folder: Path) -> None:
        """Write weights.json."""
        weights = None if self.weights is None else self.weights.tolist()
        write_json(folder / "weights.json", {"weights": weights, "bias": self.bias})

    def read(self, folder: Path) -> None:
        """Inverse of `write`."""
        found = read_object(folder / "weights.json") or {}
        self.weights = None if found["weights"] is None else np.array(found["weights"], float)
        self.bias = float(found["bias"])

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

    def _x(self, rows: pl.DataFrame, reference: pl.DataFrame | None, condition: pl.DataFrame | None) -> np.ndarray:
        if self.of is not None:
            return np.asarray(self.of(rows, reference, condition), float)
        return matrix(rows, str(self.features), self.name)

    def _weights(self, x: np.ndarray) -> np.ndarray:
        if self.weights is None:
            self.weights = np.zeros(x.shape[1])
        if len(self.weights) != x.shape[1]:
            raise InputError(f"online_linear: {len(self.weights)} weights for {x.shape[1]} features")
        return self.weights
