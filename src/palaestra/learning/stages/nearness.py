"""Scores of turns by how near they are to a goal, fitted to past play: offline goal-conditioned learning."""

from __future__ import annotations

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.stages.stage import Context, Stage, stage

KEYS = ("run", "iteration", "group", "episode", "agent")
STEP = -2.0
"""Reward of a step that enters no goal; one that does is worth -STEP / (1 - γ)."""
SWEEPS, EXPECTILE_STEPS = 100, 20
ALPHA = 1e-4
"""Weight of the squared score, times 1 - γ."""


@stage
class nearness(Stage):
    """Stage: column `nearness`, SMORe's score S(s, a, g), and `nearness_value`, its upper expectile over actions in s.

    SMORe's score model [202] (arXiv 2311.02013), which needs no discriminator and no new play. S is the least of

        mean (S - 2 / (1 - γ))²                       over the turns that enter their goal
        + ½ mean (S - (-2 + γ V(s', g)))²             over the others, s' the next state of the episode
        + 10⁻⁴ (1 - γ) mean S²                        over all

    and V(s, g) the expectile of S(s, ·, g) at `expectile`. Clone with min(e^(3 (S - V)), 100): `weights` with
    `exp_weight(nearness - nearness_value, temperature=1/3, most=100)`. Most turns enter no goal, so that episodes are
    relabelled before: `relabel(method="future")`. Both columns are null where nothing is known of what follows: on the
    last turn of an episode that ends elsewhere.

    S and V are tables over `state`, in which the goal stands, so the least is computed and not approached: two heads
    and slow targets are left out. The published code also bootstraps turns that enter a goal; here, as in the paper's
    fixed point 2 / (1 - γ), they do not. Metrics: entering (turns), unknown (turns), score (their mean).

    Args:
        achieved: Column of what the turn reached.
        goal: Column of what was asked for.
        gamma: γ in (0, 1).
        expectile: In (0, 1); above one half it leans towards the best action that was tried.

    Raises:
        InputError: A number is out of range.
    """

    adds = {"nearness": "S of state, action and goal", "nearness_value": "V of state and goal"}

    def __init__(
        self, achieved: str = "achieved", goal: str = "goal", *, gamma: float = 0.99, expectile: float = 0.8
    ) -> None:
        if not 0 < gamma < 1 or not 0 < expectile < 1:
            raise InputError(f"nearness: gamma={gamma} and expectile={expectile} must be between 0 and 1")
        self.achieved, self.goal, self.gamma, self.expectile = achieved, goal, gamma, expectile
        self.needs = {"group", "episode", "turn", "agent", "state", "action_ids", achieved, goal}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with both columns."""
        frame = turns.frame.with_row_index("_row").sort("turn", maintain_order=True)
        keys = [key for key in KEYS if key in frame.columns]
        codes = frame["state"].rank("dense").cast(pl.Int64) - 1
        frame = frame.with_columns(_here=codes).with_columns(_there=pl.col("_here").shift(-1).over(keys).fill_null(-1))
        enters = frame.select((pl.col(self.achieved) == pl.col(self.goal)).fill_null(False)).to_series().to_numpy()
        score, value = fitted(
            frame["_here"].to_numpy(),
            frame["action_ids"].list.first().fill_null(-1).to_numpy().astype(np.int64),
            frame["_there"].to_numpy(),
            enters,
            gamma=self.gamma,
            expectile=self.expectile,
        )
        back = np.argsort(frame["_row"].to_numpy())
        known = np.isfinite(score)
        context.metrics |= {"entering": float(enters.sum()), "unknown": float((~known).sum())}
        context.metrics |= {"score": float(score[known].mean())} if known.any() else {}
        columns = {"nearness": score[back], "nearness_value": value[back]}
        return turns.with_column(**{name: pl.Series(each).fill_nan(None) for name, each in columns.items()})


def fitted(
    here: np.ndarray, action: np.ndarray, there: np.ndarray, enters: np.ndarray, *, gamma: float, expectile: float
) -> tuple[np.ndarray, np.ndarray]:
    """Pair (SMORe's S, its expectile), float64[turns], fitted in a table to numbers of state, action and next state.

    NaN where one is unknown.

    Args:
        here: Number of the state and goal of each turn, int64[turns].
        action: Number of its action.
        there: Number of the next state and goal, below 0 where there is none.
        enters: Whether the turn reaches its goal, bool[turns].
        gamma: γ.
        expectile: That of the values.
    """
    cells, of = np.unique(np.stack([here, action]), axis=1, return_inverse=True)
    of = of.reshape(-1)
    states, count = cells[0], int(here.max(initial=-1)) + 1
    follows = ~enters & (there >= 0)
    anchored = np.bincount(of, enters, len(states)) / max(enters.sum(), 1)
    chained = 0.5 * np.bincount(of, follows, len(states)) / max(follows.sum(), 1)
    shrunk = ALPHA * (1 - gamma) * np.bincount(of, minlength=len(states)) / len(here)
    known = anchored + chained > 0
    often = np.bincount(of, minlength=len(states)) * known
    score, value = np.zeros(len(states)), np.full(count, STEP / (1 - gamma))  # until something leads to the goal
    each = np.maximum(np.bincount(of, follows, len(states)), 1)
    for _ in range(SWEEPS):
        ahead = np.bincount(of[follows], value[there[follows]], len(states)) / each
        mass = np.where(known, anchored + chained + shrunk, 1.0)
        score = (anchored * -STEP / (1 - gamma) + chained * (STEP + gamma * ahead)) / mass
        value = _expectile(score, often, states, count, expectile, value)
    value[np.bincount(states, often, count) == 0] = np.nan
    return np.where(known, score, np.nan)[of], value[here]


def _expectile(
    score: np.ndarray, often: np.ndarray, states: np.ndarray, count: int, expectile: float, start: np.ndarray
) -> np.ndarray:
    """Expectile of the scores of each state's actions, which count as often as they were taken: float64[states]."""
    value = start
    for _ in range(EXPECTILE_STEPS):
        weight = often * np.where(score > value[states], expectile, 1 - expectile)
        total = np.bincount(states, weight, count)
        found = np.where(total > 0, np.bincount(states, weight * score, count) / np.where(total > 0, total, 1), value)
        if np.array_equal(found, value):
            break
        value = found
    return value
