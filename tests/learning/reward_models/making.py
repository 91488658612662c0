"""Small pairs, labels and texts that tests of reward models share."""

from __future__ import annotations

import numpy as np
import polars as pl

from palaestra.learning.reward_models import Labels, Preferences


def lists(x: np.ndarray, name: str = "features") -> pl.DataFrame:
    return pl.DataFrame({name: x.tolist()}, schema={name: pl.List(pl.Float64)})


def decided(u: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Which of both sides wins, utilities float64[pairs, 2]: 0 or 1, by Bradley-Terry."""
    return (rng.random(len(u)) >= 1 / (1 + np.exp(u[:, 1] - u[:, 0]))).astype(int)


def feature_pairs(count: int, weights: list[float], seed: int = 0) -> Preferences:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 2, len(weights)))
    won, at = decided(x @ np.array(weights), rng), np.arange(count)
    return Preferences(lists(x[at, won]), lists(x[at, 1 - won]), key=at)


GOOD, BAD = ("yes please", "of course", "gladly so"), ("no way", "go away", "never ever")


def text_pairs(count: int, seed: int = 0) -> Preferences:
    """Short and long answers; the kind one is better."""
    rng = np.random.default_rng(seed)

    def said(words: tuple[str, ...]) -> list[str]:
        return [" ".join(rng.choice(words, rng.integers(1, 6))) for _ in range(count)]

    prompt = [f"ask {i % 7}" for i in range(count)]
    sides = (pl.DataFrame({"prompt": prompt, "response": said(words)}) for words in (GOOD, BAD))
    return Preferences(*sides, key=np.array(prompt))


def labelled(pairs: Preferences) -> Labels:
    rows = pl.concat([pairs.chosen, pairs.rejected])
    return Labels(rows, np.repeat([1.0, 0.0], len(pairs)), key=np.tile(np.arange(len(pairs)), 2))
