"""[16] RewardMATH (arXiv 2410.01729): one right solution against nine wrong ones, ties against it.

Recomputed by hand from the published files (483 problems): strict accuracy and reciprocal rank of InternLM2-7B are
37.27 and 55.17, -20B 33.95 and 51.95, GRM-llama3 24.43 and 45.80, ArmoRM 20.50 and 42.18, GRM-gemma 4.97 and 24.10,
GPT-4 in pairs 29.81 and 51.92 (32.00 without the 33 problems in which a verdict could not be read); Claude-3.5-Sonnet's
ratings 2.07, or 73.50 with ties. Left out: best of n with votes among equal answers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.evaluation.scorers import comparisons, rank_correlation, reciprocal_rank, strict_accuracy
from palaestra_atlas.reproductions import Outcome, reproduction

SCORERS, PROBLEMS, WRONG = 30, 400, 9


def worked_error() -> float:
    """Deviation from 0, 1, .5 for the scores [5 | 5, 3, 1]; and from 0 and 1/3 for a judge who loses two of three."""
    rows = pl.DataFrame({"group": [0] * 4, "score": [5, 5, 3, 1], "correct": [True, False, False, False]})
    found = [strict_accuracy(rows).mean, strict_accuracy(rows, ties="for").mean, reciprocal_rank(rows).mean]
    lost = comparisons(pl.DataFrame({"group": [0] * 3, "value": [1.0, 0.0, 0.0]}))["mean"].to_list()
    return float(np.abs(np.array([*found, *lost[:2]]) - [0, 1, 0.5, 0, 1 / 3]).max())


def measured_by(seed: int) -> tuple[list[float], list[float], list[float], float, float]:
    """Strict accuracy one to many and one to one, and how good the best of many samples is, of flawed scorers.

    Every scorer has a skill and over-rates some of the nine kinds of wrong solutions; the first kind, the one that one
    to one compares with, is over-rated by nobody. Last, of one judge who rates from 1 to 10: strict and with ties.
    """
    rng = np.random.default_rng(seed)
    many, one, best = [], [], []
    for _ in range(SCORERS):
        skill = rng.uniform(1.0, 3.0)
        liked = np.where(rng.random(WRONG) < rng.uniform(0, 0.6), rng.uniform(1, 4, WRONG), 0.0)
        liked[0] = 0.0
        score = rng.normal(size=(PROBLEMS, 1 + WRONG))
        score[:, 0] += skill
        score[:, 1:] += liked
        rows = {"group": np.repeat(np.arange(PROBLEMS), 1 + WRONG), "score": score.ravel()}
        frame = pl.DataFrame(rows).with_columns(correct=pl.int_range(pl.len()) % (1 + WRONG) == 0)
        many.append(strict_accuracy(frame).mean)
        one.append(strict_accuracy(frame.filter(pl.int_range(pl.len()) % (1 + WRONG) < 2)).mean)
        kinds = rng.integers(0, 1 + WRONG, (PROBLEMS, 32))  # a policy's own samples: of every kind
        value = rng.normal(size=kinds.shape) + np.where(kinds == 0, skill, np.append(0.0, liked)[kinds])
        best.append(float((np.take_along_axis(kinds, value.argmax(1)[:, None], 1) == 0).mean()))
    score = rng.normal(size=(PROBLEMS, 1 + WRONG))
    score[:, 0] += 3.0
    rated = frame.with_columns(score=(6 + pl.Series(score.ravel()) / 2).round().clip(1, 10))
    return many, one, best, strict_accuracy(rated).mean, strict_accuracy(rated, ties="for").mean


@reproduction(
    16,
    claim="One right solution against nine kinds of wrong ones says what a reward model is worth when it is optimised; "
    "against one kind it does not; and with whole ratings the rule for ties decides.",
    baseline="the same scorers, one right against one wrong solution",
    criterion="worked numbers exact; Spearman correlation with the best of 32 at least .85 one to many, at least .15 "
    "above that of one to one in every seed; ties move a rater's accuracy by .15 (held on eight fresh seeds)",
    seeds=(0, 1, 2),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Correlations over 30 scorers."""
    found = [measured_by(seed) for seed in seeds]
    many = [rank_correlation(m, best).mean for m, _, best, _, _ in found]
    one = [rank_correlation(o, best).mean for _, o, best, _, _ in found]
    moved = float(min(loose - strict for *_, strict, loose in found))
    gap = float(np.min(np.subtract(many, one)))
    measured = {
        "worked_error": worked_error(),
        "one_to_many": min(many),
        "one_to_one": max(one),
        "gap": gap,
        "ties": moved,
    }
    holds = measured["worked_error"] < 1e-9 and min(many) >= 0.85 and gap >= 0.15 and moved >= 0.15
    return Outcome(measured, holds)
