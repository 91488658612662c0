"""[206] EARL (arXiv 2510.15440): a reward for how pure the selected evidence is.

Twenty rows, three of them gold, each with a cue that is right 95 % of the time. The policy selects every row by itself,
with a probability for each cue; the answer is right with the share of gold rows that were selected. Correctness alone
selects nearly everything. With double the step size one seed of five keeps a wrong habit (IoU 0.21), with a fifth of
it one is not done in time. Left out: video, and the resampling around a selected frame.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.algebra.signals import Signal, as_signal
from palaestra.algebra.turns import Ragged, Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import uniform
from palaestra.rewards.match.evidence import earl_reward
from palaestra.rewards.match.words import jaccard

ROWS, GOLD, ACCURACY = 20, 3, 0.95
EPISODES, UPDATES, RATE, LATE = 32, 400, 0.5, 50
PURE = earl_reward("selected", "gold")
CORRECT = 2.0 * pl.col("success").cast(pl.Float64) - 1.0


def evidence(mask: np.ndarray) -> pl.Series:
    """A list column of the marked rows, from bool[episodes, rows]."""
    return Ragged(np.nonzero(mask)[1], mask.sum(axis=1)).to_series("rows")


def train(reward: Signal | pl.Expr, seeds: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Rows selected and IoU at the end of training (mean of the last updates), for each seed."""
    streams, runs = [np.random.default_rng(seed) for seed in seeds], len(seeds)
    theta = np.zeros((runs, 2))
    gold = np.broadcast_to(np.arange(ROWS) < GOLD, (runs, EPISODES, ROWS))
    gold_column = evidence(gold.reshape(-1, ROWS))
    number, purity = [], []
    for update in range(UPDATES):
        luck = uniform(streams, EPISODES, 2 * ROWS + 1)
        cue = gold ^ (luck[..., :ROWS] >= ACCURACY)
        chance = 1 / (1 + np.exp(-np.where(cue, theta[:, None, 1:], theta[:, None, :1])))
        selected = luck[..., ROWS:-1] < chance
        success = luck[..., -1] < (selected & gold).sum(axis=-1) / GOLD
        columns = {"selected": evidence(selected.reshape(-1, ROWS)), "gold": gold_column, "success": success.ravel()}
        turns = Turns(columns)
        scored = np.asarray(as_signal(reward).evaluate(turns)).reshape(runs, EPISODES)
        advantage = (scored - scored.mean(axis=1, keepdims=True))[..., None] * (selected - chance)
        gradient = [(advantage * (cue == value)).sum(axis=(1, 2)) for value in (False, True)]
        theta += RATE * np.stack(gradient, axis=1) / EPISODES
        if update >= UPDATES - LATE:
            number.append(selected.sum(axis=-1).mean(axis=1))
            iou = np.asarray(jaccard("selected", "gold").evaluate(turns))
            purity.append(iou.reshape(runs, EPISODES).mean(axis=1))
    return np.mean(number, axis=0), np.mean(purity, axis=0)


@reproduction(
    206,
    claim="A term for the overlap of selected and gold evidence makes the policy select the evidence and little else.",
    baseline="1 for a right and -1 for a wrong answer",
    criterion="in at least 4 of 5 seeds at most 5 rows and IoU >= 0.7 with the term, in all of them more than 10 rows "
    "without (so it was in 7 of 7 fresh blocks of five; in 6 of them in every seed, in one a seed stays at 16 rows)",
    seeds=(0, 1, 2, 3, 4),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Rows selected and their purity, with and without the term."""
    (rows, iou), (plain_rows, plain_iou) = train(PURE, seeds), train(CORRECT, seeds)
    measured = {"rows_earl": float(rows.mean()), "iou_earl": float(iou.mean())}
    measured |= {"rows_correctness": float(plain_rows.mean()), "iou_correctness": float(plain_iou.mean())}
    measured |= {"worst_iou_earl": float(iou.min())}
    measured["pure"] = float(((rows <= 5) & (iou >= 0.7)).mean())
    return Outcome(measured, bool(measured["pure"] >= 0.8 and (plain_rows > 10).all()))
