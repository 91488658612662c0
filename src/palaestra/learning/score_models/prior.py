"""A prior of rows of numbers, learned once from samples: scaled, its score fitted, kept in a folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from palaestra.errors import InputError, nearest
from palaestra.learning.score_models.denoising import NoiseSchedule, ScoreFit, ScoreModel
from palaestra.learning.score_models.fusion import Source, fuse, posterior_samples

Kind = Literal["network", "gaussian"]


class GaussianScore:
    """Exact score function ∇ log p_t(x) of a normal distribution, a callable: -(a_t² Σ + σ_t² I)^-1 (x - a_t μ).

    Args:
        mean: μ, float64[d].
        covariance: Σ, float64[d, d].
        schedule: of the noise.
    """

    def __init__(self, mean: np.ndarray, covariance: np.ndarray, schedule: NoiseSchedule) -> None:
        values, vectors = np.linalg.eigh(covariance)
        self.mean, self.schedule = torch.from_numpy(np.asarray(mean, float)), schedule
        self.values, self.vectors = torch.from_numpy(np.maximum(values, 0.0)), torch.from_numpy(vectors)

    def __call__(self, x: Tensor, t: Tensor) -> Tensor:
        """Score ∇ log p_t(x), float64[rows, d]."""
        scale, noise = self.schedule.scale(t)[:, None], self.schedule.noise(t)[:, None]
        turned = (x - scale * self.mean) @ self.vectors
        found: Tensor = -(turned / (scale**2 * self.values + noise**2)) @ self.vectors.T
        return found


class Prior:
    """Prior distribution of rows of numbers, learned from samples alone; sources are added later without another fit.

    Args:
        columns: names of the coordinates.
        kind: "network", a score model; "gaussian", mean and covariance of the samples, whose score is exact.
        hidden: widths of the network's layers. seed: of its start and of the fit.

    Raises:
        InputError: no such kind.
    """

    def __init__(
        self, columns: Sequence[str], kind: Kind = "network", *, hidden: Sequence[int] = (128, 128), seed: int = 0
    ) -> None:
        if kind not in ("network", "gaussian"):
            raise InputError(f"Prior: kind={kind!r}{nearest(str(kind), ['network', 'gaussian'])}")
        self.columns, self.kind, self.hidden, self.seed = tuple(columns), kind, tuple(hidden), seed
        self.schedule = NoiseSchedule()
        d = len(self.columns)
        self.centre, self.scale, self.covariance = np.zeros(d), np.ones(d), np.eye(d)
        self.model = ScoreModel(d, hidden=self.hidden, seed=seed, schedule=self.schedule)

    @property
    def score(self) -> Any:
        """Score function ∇ log p_t of the scaled coordinates."""
        if self.kind == "network":
            return self.model
        return GaussianScore(np.zeros(len(self.columns)), self.covariance, self.schedule)

    def fit(self, samples: np.ndarray, **options: Any) -> ScoreFit | None:
        """Fit to samples, float64[n, d]; options as of `ScoreModel.fit`; returns None for a gaussian prior.

        Raises:
            InputError: fewer than two samples, or a number is missing.
        """
        if len(samples) < 2 or not np.isfinite(samples).all():
            raise InputError(f"Prior: {len(samples)} samples, of which some may miss numbers; at least two whole ones")
        self.centre, deviation = samples.mean(0), samples.std(0)
        self.scale = np.where(deviation > 0, deviation, 1.0)
        scaled = (samples - self.centre) / self.scale
        self.covariance = np.atleast_2d(np.cov(scaled.T, bias=True))
        return self.model.fit(scaled, np.random.default_rng(self.seed), **options) if self.kind == "network" else None

    def belief(self, sources: Sequence[Source], n: int, rng: np.random.Generator, **options: Any) -> np.ndarray:
        """Posterior samples of the coordinates given the sources, float64[n, d]; options of `posterior_samples`."""
        scaled = [
            Source(each.operator * self.scale, each.reading - each.operator @ self.centre, each.noise, each.weight)
            for each in sources
        ]
        score = fuse(self.score, scaled, self.schedule)
        found = posterior_samples(score, n, len(self.columns), rng, schedule=self.schedule, **options)
        return found * self.scale + self.centre

    def save(self, folder: Path) -> None:
        """Write `prior.json` and `network.pt` into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        told = {"columns": self.columns, "kind": self.kind, "hidden": self.hidden, "seed": self.seed}
        numbers = {name: getattr(self, name).tolist() for name in ("centre", "scale", "covariance")}
        (folder / "prior.json").write_text(json.dumps(told | numbers))
        torch.save(self.model.network.state_dict(), folder / "network.pt")

    @classmethod
    def load(cls, folder: Path) -> Prior:
        """Prior loaded from a folder that `save` wrote.

        Raises:
            InputError: the folder holds no prior.
        """
        try:
            told = json.loads((folder / "prior.json").read_text())
            made = cls(told["columns"], told["kind"], hidden=told["hidden"], seed=told["seed"])
            for name in ("centre", "scale", "covariance"):
                setattr(made, name, np.array(told[name], float))
            made.model.network.load_state_dict(torch.load(folder / "network.pt", weights_only=True))
        except (OSError, ValueError, KeyError) as error:
            raise InputError(f"{folder}: holds no prior: {error}; `palaestra fit-prior` writes one") from error
        return made
