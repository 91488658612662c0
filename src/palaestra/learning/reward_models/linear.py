"""`linear`: a reward that is linear in features, by SciPy and BLAS alone: the baseline, and for a million pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from palaestra.errors import InputError
from palaestra.foundation.files import read_object, write_json
from palaestra.foundation.progress import Report
from palaestra.foundation.registry import load_object
from palaestra.learning.reward_models.data import Labels, Preferences, matrix, series, together
from palaestra.learning.reward_models.features import Features, Join, features, joined, scale_of
from palaestra.learning.reward_models.reward_model import REWARD_MODELS, RewardModel, keep_options
from palaestra.rewards.judged.linear import fit_differences


@REWARD_MODELS.register("linear")
class LinearReward(RewardModel):
    """Linear reward model w·x: Bradley-Terry of pairs, ridge or logistic regression of labels; fitted exactly.

    x is a row's features, times those of the condition if there is one (bilinear: x ⊗ c). weights: in the units of the
    features, `float64[columns]`; bias: of labels, 0 of pairs.

    Args:
        features: the column, or `module:function` of (rows, None, None) to float64[rows, columns].
        ridge: ½·ridge·|w|² beside the mean loss, on features of spread 1 (`standardise`); the bias is not shrunk.
    """

    kind = "linear"

    def __init__(
        self,
        features: str = "features",
        *,
        ridge: float = 1e-3,
        standardise: bool = True,
        join: Join = "outer",
        name: str = "linear",
    ) -> None:
        keep_options(self, locals())
        self.features, self.ridge, self.standardise, self.join, self.name = features, ridge, standardise, join, name
        self.of: Features | None = load_object(features, "features") if ":" in features else None
        self.weights: np.ndarray | None = None
        self.bias = 0.0

    def fit(  # type: ignore[override]
        self,
        data: Preferences | Labels,
        *,
        loss: Literal["bt", "regression", "binary"] | None = None,
        seed: int = 0,
        checkpoints: str | Path | None = None,
        progress: bool | Report = False,
    ) -> dict[str, float]:
        """Fit w to pairs (bt) or labels (default regression); rows with a missing feature or label are left out."""
        what = loss or ("bt" if isinstance(data, Preferences) else "regression")
        if (what == "bt") != isinstance(data, Preferences) or what not in ("bt", "regression", "binary"):
            raise InputError(f"linear: loss={what!r} does not go with {type(data).__name__}")
        if isinstance(data, Preferences):
            x, other = self._x(data.chosen, data.condition), self._x(data.rejected, data.condition)
            spread = self._scale(x)[1]
            gap = (x - other) / spread
            keep = ~np.isnan(gap).any(1)
            margin, weight = (None if v is None else v[keep] for v in (data.margin, data.weight))
            self.weights = fit_differences(gap[keep], margin=margin, weight=weight, ridge=self.ridge) / spread
            return {"rows": float(keep.sum())}
        x, value = self._x(data.rows, data.condition), np.asarray(data.value, float).reshape(len(data), -1)[:, 0]
        mean, spread = self._scale(x)
        keep = ~(np.isnan(x).any(1) | np.isnan(value))
        z, y = ((x - mean) / spread)[keep], value[keep]
        w = np.ones(len(y)) if data.weight is None else data.weight[keep]
        if not w.sum() > 0:
            raise InputError(
                f"{self.name}: nothing to learn from: no row has its features, a label and a weight above 0"
            )
        z = np.concatenate([z, np.ones((len(z), 1))], 1)
        ridge = np.append(np.full(z.shape[1] - 1, self.ridge), 0.0)  # the bias is not shrunk
        if what == "binary":  # a label of .7 is a 1 of weight .7 and a 0 of weight .3
            if ((y < 0) | (y > 1)).any():
                raise InputError("linear: loss='binary' needs labels in [0, 1]")
            found = fit_differences(np.concatenate([z, -z]), weight=np.concatenate([w * y, w * (1 - y)]), ridge=ridge)
        else:
            found = np.linalg.solve((z * w[:, None]).T @ z / w.sum() + np.diag(ridge), z.T @ (w * y) / w.sum())
        self.weights = found[:-1] / spread
        self.bias = float(found[-1] - self.weights @ mean)
        return {"rows": float(len(y))}

    def score(
        self, rows: pl.DataFrame, *, reference: pl.DataFrame | None = None, condition: pl.DataFrame | None = None
    ) -> pl.Series:
        """Scores w·x + bias; null where a feature is missing."""
        together(rows, condition=condition)
        x, w = self._x(rows, condition), self._known()
        if x.shape[1] != len(w):
            raise InputError(f"{self.name}: rows have {x.shape[1]} features, it was fitted to {len(w)}")
        known = ~np.isnan(x).any(1)
        return series(self.name, x[known] @ w + self.bias, known)

    def write(self, folder: Path) -> None:
        """Write weights.json."""
        write_json(folder / "weights.json", {"weights": self._known().tolist(), "bias": self.bias})

    def read(self, folder: Path) -> None:
        """Inverse of `write`."""
        found: dict[str, Any] = read_object(folder / "weights.json") or {}
        self.weights, self.bias = np.array(found["weights"]), float(found["bias"])

    def _known(self) -> np.ndarray:
        if self.weights is None:
            raise InputError(f"{self.name}: it has learned nothing yet; call fit first")
        return self.weights

    def _x(self, rows: pl.DataFrame, condition: pl.DataFrame | None) -> np.ndarray:
        if self.of is None:
            return features(rows, condition, name=self.features, method=self.join, who=self.name)
        given = None if condition is None else matrix(condition, "features", f"{self.name} (condition)")
        return joined(np.asarray(self.of(rows, None, None), float), given, self.join)

    def _scale(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return scale_of(x) if self.standardise else (np.zeros(x.shape[1]), np.ones(x.shape[1]))
