"""[16] RewardMATH (arXiv 2410.01729): one right solution against nine wrong ones, ties against it.

Recomputed by hand from the published files (483 problems): strict accuracy and reciprocal rank of InternLM2-7B are
37.27 and 55.17, -20B 33.95 and 51.95, GRM-llama3 24.43 and 45.80, ArmoRM 20.50 and 42.18, GRM-gemma 4.97 and 24.10,
GPT-4 in pairs 29.81 and 51.92 (32.00 without the 33 problems in which a verdict could not be read); Claude-3.5-Sonnet's
ratings 2.07, or 73.50 with ties. Left out: best of n with votes among equal answers.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.evaluation.scorers import comparisons, rank_correlation, read_scores, reciprocal_rank, strict_accuracy
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

SCORERS, PROBLEMS, WRONG = 30, 400, 9
FILES = 12
"""Scorers of which the use writes files."""


def problem(*scores: float) -> pl.DataFrame:
    """Scores of one problem, the right solution first."""
    return pl.DataFrame({"group": [0] * len(scores), "score": scores, "correct": [i == 0 for i in range(len(scores))]})


def published(*problems: dict[str, Any], steps: Any = "min") -> pl.DataFrame:
    """Problems as RewardMATH writes them, read back."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scores.json"
        path.write_text(json.dumps([{"problem": "?", **each} for each in problems]))
        found = read_scores(path, steps=steps)
    assert found is not None
    return found


@exact
def all_wrong_ones() -> None:
    """The right solution must beat every wrong one, not only the first."""
    assert strict_accuracy(problem(5, 1, 6, 3)).mean == 0.0
    assert strict_accuracy(problem(5, 1, 4, 3)).mean == 1.0


@exact
def ties() -> None:
    """[5 | 5, 3, 1]: 0 by the strict rule, 1 with ties, and rank 2."""
    rows = problem(5, 5, 3, 1)
    assert strict_accuracy(rows).mean == 0.0
    assert strict_accuracy(rows, ties="for").mean == 1.0
    assert reciprocal_rank(rows).mean == 0.5


@exact
def steps() -> None:
    """Step scores become one by the rule that is named: the minimum is for one solution, the product for the other."""
    steps = [[0.6, 0.6, 0.6], [0.5, 1.0, 1.0]]
    row = {"solution_reference": ["human_to_GPT-4", "other"], "score": steps}
    assert strict_accuracy(published(row, steps="min")).mean == 1.0
    assert strict_accuracy(published(row, steps="product")).mean == 0.0
    np.testing.assert_allclose(published(row, steps="product")["score"], [0.216, 0.5])


@exact
def pairwise() -> None:
    """A judge wins a problem by winning all comparisons; whoever always says A wins none."""
    sources = ["human_to_GPT-4"] * 4
    row = {"solution_reference": sources, "chosen_position": ["A", "B", "A", "B"], "score": ["A"] * 4}
    found = comparisons(published(row))
    assert found["mean"].to_list() == [0.0, 1 / 3, 0.5]
    won = comparisons(published(row | {"score": row["chosen_position"]}))
    assert won["mean"].to_list() == [1.0, 1.0, 1.0]


def files(seed: int, folder: Path) -> None:
    """Scores of flawed scorers as RewardMATH writes them, one to many and one to one, and what each is worth."""
    rng = np.random.default_rng([16, seed])
    best = []
    for number in range(FILES):
        score, worth = flawed(rng)
        best.append(worth)
        for name, wrong in (("many", WRONG), ("one", 1)):
            names = ["human_to_GPT-4", *(f"model {i}" for i in range(wrong))]
            rows = [
                {"problem": "?", "solution_reference": names, "score": each[: 1 + wrong].tolist()} for each in score
            ]
            (folder / f"{name}{number}.json").write_text(json.dumps(rows))
    (folder / "worth.json").write_text(json.dumps(best))


def agreement() -> Measure:
    """Spearman correlation of the printed strict accuracies with what the best of many samples is worth."""

    def measured(left: Left) -> list[float]:
        tables = [each["scores"] for each in json.loads(left.stdout)]
        strict = [next(row["mean"] for row in table if row["protocol"] == "strict") for table in tables]
        worth = json.loads((left.directory / "worth.json").read_text())
        return [rank_correlation(strict, worth).mean]

    return measured


def flawed(rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Scores [problems, one right and the wrong ones] of one scorer, and how often the best of 32 is right by it."""
    skill = rng.uniform(1.0, 3.0)
    liked = np.where(rng.random(WRONG) < rng.uniform(0, 0.6), rng.uniform(1, 4, WRONG), 0.0)
    liked[0] = 0.0
    score = rng.normal(size=(PROBLEMS, 1 + WRONG))
    score[:, 0] += skill
    score[:, 1:] += liked
    kinds = rng.integers(0, 1 + WRONG, (PROBLEMS, 32))  # a policy's own samples: of every kind
    value = rng.normal(size=kinds.shape) + np.where(kinds == 0, skill, np.append(0.0, liked)[kinds])
    return score, float((np.take_along_axis(kinds, value.argmax(1)[:, None], 1) == 0).mean())


def measured_by(seed: int) -> tuple[list[float], list[float], list[float], float, float]:
    """Strict accuracy one to many and one to one, and how good the best of many samples is, of flawed scorers.

    Every scorer has a skill and over-rates some of the nine kinds of wrong solutions; the first kind, the one that one
    to one compares with, is over-rated by nobody. Last, of one judge who rates from 1 to 10: strict and with ties.
    """
    rng = np.random.default_rng(seed)
    many, one, best = [], [], []
    for _ in range(SCORERS):
        score, worth = flawed(rng)
        best.append(worth)
        rows = {"group": np.repeat(np.arange(PROBLEMS), 1 + WRONG), "score": score.ravel()}
        frame = pl.DataFrame(rows).with_columns(correct=pl.int_range(pl.len()) % (1 + WRONG) == 0)
        many.append(strict_accuracy(frame).mean)
        one.append(strict_accuracy(frame.filter(pl.int_range(pl.len()) % (1 + WRONG) < 2)).mean)
    score = rng.normal(size=(PROBLEMS, 1 + WRONG))
    score[:, 0] += 3.0
    rated = frame.with_columns(score=(6 + pl.Series(score.ravel()) / 2).round().clip(1, 10))
    return many, one, best, strict_accuracy(rated).mean, strict_accuracy(rated, ties="for").mean


@reproduction(
    16,
    claim="One right solution against nine kinds of wrong ones says what a reward model is worth when it is optimised; "
    "against one kind it does not; and with whole ratings the rule for ties decides.",
    baseline="the same scorers, one right against one wrong solution",
    criterion="Spearman correlation with the best of 32 at least .85 one to many, at least .15 "
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
        "one_to_many": min(many),
        "one_to_one": max(one),
        "gap": gap,
        "ties": moved,
    }
    holds = min(many) >= 0.85 and gap >= 0.15 and moved >= 0.15
    return Outcome(measured, holds)
