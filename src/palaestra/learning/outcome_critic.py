"""Chances of success read off a text: `OutcomeCritic` by its words, `OutcomeTable` for each text by itself."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from palaestra.errors import InputError


class OutcomeCritic:
    """Outcome critic: an ensemble of logistic regressions of success on the hashed words of a text.

    The cross-entropy critic of DigiRL (arXiv 2406.11896) and WebRL (arXiv 2411.02337), with words in place of a
    language model's trunk. Heads differ where little is known.

    Args:
        heads: how many. buckets: words are hashed into so many. ridge: weight of the squared coefficients; the
            intercept is free but for a millionth of it.
    """

    def __init__(self, *, heads: int = 2, buckets: int = 256, ridge: float = 0.3) -> None:
        if heads < 1 or buckets < 1 or ridge <= 0:
            raise InputError(f"OutcomeCritic: heads={heads} and buckets={buckets} of at least 1, ridge={ridge} above 0")
        self.buckets, self.ridge = buckets, ridge
        self.weights = np.zeros((heads, buckets + 1))

    def features(self, texts: Sequence[str]) -> np.ndarray:
        """Counts of hashed words and a 1, float64[texts, buckets + 1]."""
        found = np.zeros((len(texts), self.buckets + 1))
        for row, text in enumerate(texts):
            for word in text.split():
                found[row, zlib.crc32(word.encode(errors="surrogatepass")) % self.buckets] += 1
        found[:, -1] = 1
        return found

    def fit(self, texts: Sequence[str], success: np.ndarray, rng: np.random.Generator, *, steps: int = 6) -> None:
        """Fit each head to its own resample of `success`, float64[texts] in [0, 1], by a few Newton steps."""
        seen, outcome = self.features(texts), np.asarray(success, float)
        penalty = np.full(self.buckets + 1, self.ridge)
        penalty[-1] *= 1e-6
        for head in range(len(self.weights)):
            drawn = rng.integers(len(texts), size=len(texts))
            x, y, w = seen[drawn], outcome[drawn], self.weights[head]
            for _ in range(steps):
                chance = _logistic(x @ w)
                slope = x.T @ (chance - y) + penalty * w
                curve = (x * (chance * (1 - chance))[:, None]).T @ x + np.diag(penalty + 1e-3)
                w = w - np.clip(np.linalg.solve(curve, slope), -3, 3)
            self.weights[head] = w

    def predict(self, texts: Sequence[str]) -> np.ndarray:
        """Chance of success by each head, float64[texts, heads]; 0.5 before the first fit."""
        return _logistic(self.features(texts) @ self.weights.T)

    def state_dict(self) -> dict[str, Any]:
        """Copy of the coefficients."""
        return {"weights": self.weights.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.weights = np.array(state["weights"], float)


class OutcomeTable:
    """Outcome critic as a table: by head, each text's smoothed share of successes in a random half of the samples.

    Each head counts half of the samples, drawn anew at each fit, twice. Same methods as `OutcomeCritic`.

    Args:
        heads: Number of heads.
    """

    def __init__(self, *, heads: int = 2) -> None:
        if heads < 1:
            raise InputError(f"OutcomeTable: heads={heads} must be at least 1")
        self.heads = heads
        self.chances: dict[str, list[float]] = {}

    def fit(self, texts: Sequence[str], success: np.ndarray, rng: np.random.Generator) -> None:
        """Count the successes of each text anew, float64[texts] in [0, 1]; earlier fits are forgotten."""
        names, codes = np.unique(np.asarray(texts, object), return_inverse=True)
        found = np.zeros((len(names), self.heads))
        for head in range(self.heads):
            drawn = rng.permutation(len(codes))[: (len(codes) + 1) // 2]
            good = np.bincount(codes[drawn], np.asarray(success, float)[drawn], len(names))
            found[:, head] = (2 * good + 1) / (2 * np.bincount(codes[drawn], minlength=len(names)) + 2)
        self.chances = dict(zip(names.tolist(), found.tolist(), strict=True))

    def predict(self, texts: Sequence[str]) -> np.ndarray:
        """Chance of success by each head, float64[texts, heads]; 0.5 for an unknown text."""
        unknown = [0.5] * self.heads
        return np.array([self.chances.get(text, unknown) for text in texts], float).reshape(len(texts), self.heads)

    def state_dict(self) -> dict[str, Any]:
        """The table of chances."""
        return {"chances": {text: list(each) for text, each in self.chances.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.chances = {str(text): list(each) for text, each in state["chances"].items()}


def _logistic(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-np.clip(x, -30, 30))))
