"""`human_gain`: what a person reached beyond what it reaches without help ([154])."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from palaestra.algebra.returns import return_to_go
from palaestra.algebra.signals import col, evaluate
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.stages.cells import Cells, keys_of
from palaestra.learning.stages.stage import Context, Stage, stage


@stage
class human_gain(Stage):
    """Stage: learns V in `fits` iterations (`unaided` = Σ V_k), then `gain` = Σ R_k - V_k - Ĝ_k of `seat`'s `goals`.

    RLHG [154]: `gain` is what the seat reached of all its goals beyond what was expected.

    R_k is the discounted return of the seat's own goal k from its turn on. V_k is what it reached there in the first
    `fits` iterations that this stage sees, with the team mates of that time; then V is frozen, and `gain` begins. Ĝ_k
    is the expected gain, learned in every later iteration from positive gains only, after it has been asked: a loss
    beyond V is never learned as an expectation, but lowers A_h. A key without positive gains expects the mean of all.
    Turns in which the seat does not act have no gain (null), so mixed play, with and without a person, needs no more
    than an env that has both kinds of episodes.

    The published networks are tables here, running means by the key `over`. Put the stage into the phase after the
    team has learned its task; the credit `assistance()` adds `gain` to the task's advantage.

    Args:
        seat: the person's agent.
        goals: columns, one per goal, with what the seat got of it in its turn; such as "passed".
        gamma: discount of the goals' returns.
        fits: iterations in which V is fitted.
        over: key of the means.
        rate: of Ĝ, the least step of an iteration (`Cells`).

    Metrics: `gain`, mean of Σ G_k over the seat's turns; `positive_loss`, see `positive_gain_loss`.

    Raises:
        InputError: no goals, or a number is out of range.

    Source: arXiv 2401.16444 and its published code; not run here.
    """

    adds = {
        "gain": "what the person reached beyond what it reaches alone, less what was expected of that",
        "unaided": "what the person reaches without help from its turn on, summed over its goals",
    }

    def __init__(
        self,
        seat: str,
        goals: str | Sequence[str],
        *,
        gamma: float = 1.0,
        fits: int = 10,
        over: str | Sequence[str] = ("agent", "state"),
        rate: float = 0.1,
    ) -> None:
        listed = (goals,) if isinstance(goals, str) else tuple(goals)
        if fits < 1 or not listed:
            raise InputError(f"human_gain: fits={fits} must be at least 1, and at least one goal is needed")
        self.seat, self.fits, self.fitted = seat, fits, 0
        self.returns = [return_to_go(col(goal), gamma=gamma) for goal in listed]
        self.over = (over,) if isinstance(over, str) else tuple(over)
        self.alone = [Cells(0.0) for _ in listed]
        self.expected = [Cells(rate) for _ in listed]
        self.needs = {"episode", "turn", "agent", *self.over}.union(*(each.needs() for each in self.returns))

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with `gain` and `unaided`; null where the seat does not act, and `gain` until V is frozen."""
        own = np.flatnonzero((turns.frame["agent"].cast(pl.String) == self.seat).to_numpy())
        reached = np.stack([np.asarray(each, float)[own] for each in evaluate(turns, *self.returns)], axis=1)
        keys = keys_of(turns, self.over).gather(own)
        fitting = self.fitted < self.fits
        if fitting:
            self.fitted += 1
            for cells, goal in zip(self.alone, reached.T, strict=True):
                cells.add(keys, goal)
        alone = np.stack([cells.value(keys) for cells in self.alone], axis=1)
        hoped = np.stack([cells.value(keys) for cells in self.expected], axis=1)
        gains = residual_gain(reached, alone)
        if fitting:
            left = np.full(len(own), np.nan)
        else:
            left = (gains - hoped).sum(1)
            for cells, each in zip(self.expected, gains.T, strict=True):
                cells.add(keys, np.where(each > 0, each, np.nan))
            context.metrics["gain"] = float(gains.sum(1).mean()) if len(own) else 0.0
            context.metrics["positive_loss"] = float(positive_gain_loss(gains, hoped).mean()) if len(own) else 0.0
        codes = turns.codes("episode", "turn")
        found = np.full((codes.size, 2), np.nan)
        found[codes.ids[own]] = np.stack([left, alone.sum(1)], axis=1)
        gain, unaided = found[codes.ids].T
        return turns.with_column(gain=gain, unaided=unaided)

    def state_dict(self) -> dict[str, Any]:
        """State: both tables of each goal, and how often V was fitted."""
        return {
            "fitted": self.fitted,
            "alone": [cells.state_dict() for cells in self.alone],
            "expected": [cells.state_dict() for cells in self.expected],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.fitted = int(state["fitted"])
        for name, tables in (("alone", self.alone), ("expected", self.expected)):
            for cells, kept in zip(tables, state[name], strict=True):
                cells.load_state_dict(kept)


def residual_gain(returns: np.ndarray, unaided: np.ndarray, *, positive: bool = False) -> np.ndarray:
    """Gain over what would have happened anyway, G = R - V, float64[rows, goals]; positive: 0 instead of a loss.

    >>> residual_gain(np.array([3.0, 1.0]), np.array([2.0, 1.5])).tolist()
    [1.0, -0.5]
    """
    gain = np.asarray(returns, float) - unaided
    return np.asarray(np.maximum(gain, 0.0) if positive else gain)


def positive_gain_loss(gains: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Σ over goals of ½ · 1[G > 0] · (G - Ĝ)², float64[rows]: the loss of the gain's predictor.

    gains, expected: float64[..., goals].

    >>> positive_gain_loss(np.array([1.0, -0.5]), np.array([0.4, 0.2])).round(9).item()
    0.18
    """
    return np.asarray((0.5 * (gains > 0) * (gains - expected) ** 2).sum(-1))
