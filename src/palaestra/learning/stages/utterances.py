"""A reward model of single utterances, fitted to labels that a judge gave: what Sotopia-RL [169] trains on."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.stages.novelty import hashed_words
from palaestra.learning.stages.stage import Context, Stage, stage


@stage
class utterance_reward(Stage):
    """Stage: column `utterance`, prediction of `label` (default: reward) from a turn's words by ridge regression [169].

    Source: Sotopia-RL.

    Source: arXiv 2508.03905.

    Ridge regression by squared error on hashed words of the observation, of the action, and on their pairs; it goes on
    over iterations, this one's labels included. Where a label is missing, the prediction is not.

    Args:
        label: a column or signal; by default the recipe's reward, such as `sotopia_reward(…)` of a judge's columns.
        size, ridge: number of features, and of the fit.
        into: the column of predictions, what the credit is of: `single_utterance("utterance")`.
    """

    adds = {"utterance": "reward of the utterance, predicted"}

    def __init__(self, label: str = "reward", *, size: int = 256, ridge: float = 0.1, into: str = "utterance") -> None:
        if size < 2 or not ridge > 0:
            raise InputError(f"utterance_reward: {size=} must be at least 2, {ridge=} above 0")
        self.label, self.size, self.ridge = parse(label, columns=(label,)), size, ridge
        self.into, self.adds = into, {into: type(self).adds["utterance"]}
        self.needs = {*self.label.needs(), "observation", "action"}
        self.squares, self.products = np.zeros((size, size)), np.zeros(size)

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with the predictions."""
        x, label = self._features(turns), np.asarray(self.label.evaluate(turns), float)
        known = np.isfinite(label)
        self.squares += x[known].T @ x[known]
        self.products += x[known].T @ label[known]
        weights = np.linalg.solve(self.squares + self.ridge * np.eye(self.size), self.products)
        return turns.with_column(**{self.into: x @ weights})

    def _features(self, turns: Turns) -> np.ndarray:
        """float64[rows, size]: words, pairs of words, and 1."""
        both = turns.frame.select(pl.col("observation", "action").cast(pl.String).fill_null(""))
        places: dict[tuple[str, str], int] = {}
        rows = [places.setdefault((seen, said), len(places)) for seen, said in both.iter_rows()]
        texts = []
        for seen, said in places:
            first, second = re.findall(r"\w+", seen.casefold()), re.findall(r"\w+", said.casefold())
            pairs = [f"{one}_{other}" for one in first for other in second]
            texts.append(" ".join([*first, *(f"said_{word}" for word in second), *pairs]))
        return np.hstack([hashed_words(texts, self.size - 1), np.ones((len(texts), 1))])[rows]

    def state_dict(self) -> dict[str, Any]:
        """State: the normal equations."""
        return {"squares": self.squares, "products": self.products}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.squares, self.products = (np.array(state[name]) for name in ("squares", "products"))
