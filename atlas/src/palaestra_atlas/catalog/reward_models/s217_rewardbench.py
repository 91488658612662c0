"""[217] RewardBench 2 (arXiv 2506.01937): best of four with a fraction for ties, a score of ties, six domains.

The published scorer's functions were run beside ours on 200 made-up files of its format: the largest difference was
1e-17. Left out: its prompts, and reinforcement learning with the models.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.evaluation.scorers import best_of_k_accuracy, rank_correlation, ties_score
from palaestra_atlas.reproductions import Outcome, reproduction

CREDITS = {(9, 7, 7, 1): 1.0, (7, 7, 3, 1): 0.5, (7, 7, 7, 1): 1 / 3, (7, 7, 7, 7): 0.25, (6, 7, 1, 1): 0.0}
TIES = [([5, 4.5, 4.8, 2, 1], [5, 1.5, 1]), ([3, 1, 2.5, 0.5, 0.2], [3, 3.2, 1])]
SCORERS, PROMPTS = 25, 1000


def worked_error() -> float:
    """Largest deviation from the credits of five prompts, and from the score of two pairs of ties, .650994."""
    found = []
    for scores, credit in CREDITS.items():
        one = pl.DataFrame({"group": [0] * 4, "score": scores, "correct": [True, False, False, False]})
        found.append(best_of_k_accuracy(one).mean - credit)
    rows = [
        {"prompt": i, "kind": kind, "score": float(s), "correct": j < right}
        for i, pair in enumerate(TIES)
        for kind, scores, right in zip(("tied", "ref"), pair, (3, 1), strict=True)
        for j, s in enumerate(scores)
    ]
    found.append(ties_score(pl.DataFrame(rows), resamples=0).score - 0.6509941513898921)
    return float(np.abs(found).max())


def scorers(seed: int) -> tuple[list[float], list[float], list[float]]:
    """Best-of-4 accuracy, with ties for and with the fraction, and the utility of the best of 16, of noisy scorers.

    Half of the scorers say a whole number from 1 to 10, as judges do.
    """
    rng = np.random.default_rng(seed)
    fair, lenient, best = [], [], []
    for i, noise in enumerate(np.linspace(0.2, 3, SCORERS)):
        utility = rng.normal(size=(PROMPTS, 16))
        score = utility + noise * rng.normal(size=utility.shape)
        if i % 2:
            score = np.clip(np.round(6 + score), 1, 10)
        tops = score == score.max(1, keepdims=True)
        best.append(float(((utility * tops).sum(1) / tops.sum(1)).mean()))
        right = utility[:, :4] == utility[:, :4].max(1, keepdims=True)
        rows = {"group": np.repeat(np.arange(PROMPTS), 4), "score": score[:, :4].ravel(), "correct": right.ravel()}
        frame = pl.DataFrame(rows)
        fair.append(best_of_k_accuracy(frame).mean)
        lenient.append(best_of_k_accuracy(frame, credit="any").mean)
    return fair, lenient, best


@reproduction(
    217,
    claim="Best-of-4 accuracy with a fraction for ties predicts what the best of 16 is worth; counting a tie as right "
    "flatters who rates in whole numbers.",
    baseline="the same accuracy where the right answer need only be among the highest (credit='any')",
    criterion="worked credits and score of ties exact to 1e-9; Pearson correlation with the best of 16 above .95 with "
    "the fraction, and at least .02 above that of the lenient rule, in every seed (held on eight fresh seeds)",
    seeds=(0, 1, 2),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Correlations over 25 scorers, half of them in whole numbers."""
    fair, lenient = [], []
    for seed in seeds:
        one, other, best = scorers(seed)
        fair.append(rank_correlation(one, best, kind="pearson").mean)
        lenient.append(rank_correlation(other, best, kind="pearson").mean)
    gap = float(np.min(np.subtract(fair, lenient)))
    measured = {"worked_error": worked_error(), "fraction": float(min(fair)), "any": float(max(lenient)), "gap": gap}
    return Outcome(measured, measured["worked_error"] < 1e-9 and measured["fraction"] > 0.95 and gap >= 0.02)
