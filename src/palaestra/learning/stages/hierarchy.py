"""A reward network that learns from pairs of episodes which ranked factors decide (HERON [200])."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.algebra.keys import is_last
from palaestra.algebra.parse import parse
from palaestra.algebra.signals import evaluate, mean
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.stages.stage import Context, Stage, stage
from palaestra.rewards.judged.pairs import lexicographic_preference

if TYPE_CHECKING:
    from palaestra.learning.reward_models import HeadReward


BATCH = 64
"""Pairs per step of the network."""


@stage
class heron(Stage):
    """Stage: column `heron`, HERON's reward [200] learned from a ranking by `factors`, on an episode's last turn.

    It is 0 on the other turns. Source: arXiv 2309.02632.

    The last `buffer` episodes are compared level by level: the first factor decides by any difference, a later one if
    the difference exceeds `margin` standard deviations, else the next (`lexicographic_preference`). A network of the
    factors learns -log σ(r_winner - r_loser) of at most `pairs` such pairs, anew in every iteration, and its scores are
    standardised over the iteration. The same order without a network is the signal `lexicographic(…)`.

    Args:
        factors: texts of signals, the most important first; each is the mean over the episode. signs: 1 if more of a
            factor is better, -1 if less is. hidden, epochs, lr: of the network.

    Raises:
        InputError: no factors, as many signs as factors are not given, or a number is out of range.
    """

    adds = {"heron": "what the network makes of the episode, on its last turn"}

    def __init__(
        self,
        *factors: str,
        signs: Sequence[float] | None = None,
        margin: float = 1.0,
        buffer: int = 256,
        pairs: int = 512,
        hidden: int = 16,
        epochs: int = 10,
        lr: float = 0.05,
    ) -> None:
        self.signs = (1.0,) * len(factors) if signs is None else tuple(map(float, signs))
        if not factors or len(self.signs) != len(factors) or min(buffer - 1, pairs, hidden, epochs) < 1 or margin < 0:
            raise InputError(
                f"heron: {len(factors)} factors and {len(self.signs)} signs, {buffer=} above 1, {pairs=}, {hidden=} "
                f"and {epochs=} at least 1, {margin=} not negative"
            )
        self.factors = [mean(parse(each, columns=(each,)), over="episode") for each in factors]
        self.margin, self.buffer, self.pairs = float(margin), buffer, pairs
        self.hidden, self.epochs, self.lr = hidden, epochs, lr
        self.needs = {"episode", *(name for each in self.factors for name in each.needs())}
        self.seen = np.zeros((0, len(factors)))
        self.model: HeadReward | None = None

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with the reward; 0 everywhere until a pair was decided, missing where a factor is."""
        *columns, last = (np.asarray(each, float) for each in evaluate(turns, *self.factors, is_last(over="episode")))
        factors = np.stack(columns, axis=-1)
        known = (last == 1) & ~np.isnan(factors).any(axis=1)
        self.seen = np.concatenate([self.seen, factors[known]])[-self.buffer :]
        self._fit(context)
        paid = np.where((last == 1) & ~known, np.nan, 0.0)
        if self.model is not None:
            scores = self.model.score(self._rows(factors[known])).to_numpy()
            paid[known] = (scores - scores.mean()) / (scores.std() or 1.0)
        return turns.with_column(heron=paid)

    def _fit(self, context: Context) -> None:
        from palaestra.learning.reward_models import HeadReward, Preferences

        first, second = np.triu_indices(len(self.seen), 1)
        unit = self.seen.std(axis=0)
        scaled = self.seen / np.where(unit > 0, unit, 1.0)
        margins = (self.margin,) * len(self.signs)
        label = lexicographic_preference(scaled[first], scaled[second], signs=self.signs, margins=margins)
        decided = context.rng.permutation(np.flatnonzero(label))[: self.pairs]
        if not len(decided):
            return
        won = label[decided] > 0
        winner = np.where(won, first[decided], second[decided])
        loser = np.where(won, second[decided], first[decided])
        data = Preferences(self._rows(self.seen[winner]), self._rows(self.seen[loser]))
        self.model = HeadReward(layers=2, hidden=self.hidden, name="heron")
        self.model.fit(data, epochs=self.epochs, lr=self.lr, batch=BATCH, seed=context.seed)

    def _rows(self, factors: np.ndarray) -> pl.DataFrame:
        """Factors as the network reads them, in standard deviations of the buffer from its mean."""
        unit = self.seen.std(axis=0)
        scaled = (factors - self.seen.mean(axis=0)) / np.where(unit > 0, unit, 1.0)
        return pl.DataFrame({"features": pl.Series(scaled.tolist(), dtype=pl.List(pl.Float64))})

    def state_dict(self) -> dict[str, Any]:
        """State: the stored episodes to compare."""
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`; the network is learned anew from them."""
        self.seen = np.asarray(state["seen"], float).reshape(-1, len(self.signs))
