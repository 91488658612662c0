"""Every protocol of scorers on small tables with ties and holes gives what it gave; see `tests.frozen`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import numpy as np
import polars as pl
import pytest
from tests.frozen import Case, changed, kinds, write

from palaestra.evaluation import scorers as s
from palaestra.evaluation.scorers import agreement, files, groups, rewardbench, verdict_table

FROZEN = Path(__file__).with_name("frozen.json")
FEW = 40
N = math.nan


@cache
def scored(kind: str) -> pl.DataFrame:
    """Nine groups of four in halves, one to three of them right."""
    rng = np.random.default_rng(len(kind))
    table = pl.DataFrame(
        {
            "group": np.repeat(np.arange(9), 4),
            "score": rng.integers(0, 4 if "ties" in kind else 40, 36) / 2,
            "correct": np.tile(np.arange(4), 9) < np.repeat(np.arange(9) % 3 + 1, 4),
            "prompt": np.repeat(np.arange(9) // 2, 4),
            "kind": np.repeat(["tied", "ref"] * 4 + ["tied"], 4),
            "domain": np.repeat(["Math"] * 3 + ["Ties"] * 4 + ["Safety"] * 2, 4),
        }
    )
    if "holes" in kind:
        table = table.with_columns(score=pl.when(pl.Series(rng.random(36) < 0.9)).then("score"))
    return table


def of_groups() -> Iterator[tuple[str, Case]]:
    for kind in ("plain", "ties", "holes", "ties, holes"):
        table = scored(kind)
        for missing in get_args(groups.Missing):
            yield (
                f"best, {kind}, {missing}",
                lambda t=table, m=missing: [
                    groups.scored_groups(t, "score", "correct", "group", missing=m),
                    *(s.best_of_k_accuracy(t, credit=c, missing=m, level=0.9) for c in get_args(groups.Credit)),
                ],
            )
            yield (
                f"domains, {kind}, {missing}",
                lambda t=table, m=missing: s.domain_scores(t, missing=m, resamples=FEW, level=0.8),
            )
        for ties in get_args(groups.Ties):
            yield (
                f"ties, {kind}, {ties}",
                lambda t=table, how=ties: [
                    f(t, ties=how, by=by)
                    for f in (s.strict_accuracy, s.reciprocal_rank, s.pair_accuracy)
                    for by in ("group", ("domain", "kind"))
                ],
            )
        yield f"protocols, {kind}", lambda t=table: s.protocols(t, level=0.8)
        yield (
            f"card, {kind}",
            lambda t=table: [
                s.ties_score(t, resamples=n, seed=seed, level=level)
                for n, seed, level in ((0, 0, 0.95), (FEW, 0, 0.95), (FEW, 1, 0.5))
            ],
        )
    for values in ([], [None], [0.0, 1], [0.0, 1, None], [0.5, 1], [0.5] * 3, [1.0] * 12, [0.25, 0.5, 0.75, None]):
        yield f"mean {values}", lambda v=values: groups.estimate(pl.Series(v, dtype=pl.Float64), 0.9)
    judged = pl.DataFrame({"group": np.arange(12) // 2, "value": [1.0, 1, 0.5, 1, 0, 0.5, 0.5, 0.5, None, 1, N, 0]})
    for missing in get_args(groups.Missing):
        yield f"comparisons, {missing}", lambda m=missing: s.comparisons(judged, missing=m, level=0.8)
    cards = {
        "no spread": ([2, 2, 2, 1], [2, 1]),
        "even": ([2, 2, 2, 2], [2, 2]),
        "gap of the spread": ([3, 2, 2, 1], [2, 1]),
        "reference of the spread": ([4, 3, 3, 1], [2, 1]),
        "even reference": ([4, 3, 3, 1], [2, 2]),
        "two right": ([4, 3, 1, 1], [2, 0]),
    }
    for name, (many, one) in cards.items():
        for right in (1, 2, 3):
            rows = [("tied", x, i < right) for i, x in enumerate(many)] + [("ref", x, i < 1) for i, x in enumerate(one)]
            card = pl.DataFrame(rows, schema=["kind", "score", "correct"], orient="row").with_columns(prompt=pl.lit(0))
            yield f"card of {name}, {right}", lambda c=card: s.ties_score(c, resamples=3)
    yield (
        "parts",
        lambda: rewardbench._parts(
            np.array([1.0, 0, 0, -1, N, 2, 1]), np.array([1.0, 1, 0, 2, 1, N, 1]), np.array([1.0, 0, 0, 1, 1, 1, N])
        ),
    )
    steps = ([0.8, 0.5], [0.25, 0.5, 1.0], [1.0], [0.0, 0.5], [])
    yield "steps", lambda: [[rule(np.array(x)) for x in steps] for rule in files.REDUCE.values()]


def of_judges() -> Iterator[tuple[str, Case]]:
    rng = np.random.default_rng(3)
    ratings = rng.integers(1, 4, (3, 12)).astype(float)
    ratings[rng.random(ratings.shape) < 0.2] = N
    alike = np.tile([1.0, 2, 2, 5], (2, 3))
    pairs = np.array([[1.0, N, 2, 3, 3], [N, 1, 2, 3, 1], [N, N, N, 3, 1]])
    close = np.array([[0.0, 1e-7, 0, 1e-7], [0, 1e-7, 1e-7, 0]])
    wide = rng.integers(0, 60, (2, 80)).astype(float)
    for measure in get_args(agreement.Level):
        yield (
            f"alpha, {measure}",
            lambda m=measure: [
                s.krippendorff_alpha(x, measure=m, level=level, resamples=FEW, seed=seed)
                for x in (ratings, ratings[:, :9], ratings[:, :10], alike, pairs, pairs[:, :2] * 0 + 1, 3 - ratings)
                if np.isfinite(x).sum(0).max() > 1
                for level, seed in ((0.95, 0), (0.5, 1))
            ],
        )
        yield (
            f"alpha of nearly one value, {measure}",
            lambda m=measure: s.krippendorff_alpha(close, measure=m, resamples=3),
        )
        yield f"alpha of many values, {measure}", lambda m=measure: in_blocks(wide, m)
    a, b = [*"aabbccabca"], [*"aabcccbbaa"]
    for weights in (None, *get_args(agreement.Weights)):
        yield (
            f"kappa, {weights}",
            lambda w=weights: [
                s.cohen_kappa(x, y, weights=w, level=level, resamples=FEW, seed=seed)
                for x, y in ((a, b), (a[:9], b[:9]), (a, a), ([1, 5, 2, None, 5], [5, 1, 2, 2, N]), ([1, 1], [1, 1]))
                for level, seed in ((0.95, 0), (0.5, 1))
            ],
        )
    for at in ((3, 1, 4, 2), (0, 0, 4, 2), (3, 0, 0, 0), (0, 2, 0, 0), (0, 0, 0, 5), (1, 0, 0, 1), (0, 0, 0, 0)):
        found = verdict_table.Confusion(*at)
        yield (
            f"confusion {at}",
            lambda c=found: [c.recall, c.precision, c.accuracy, c.false_alarm, c.f1, c.acted, c.table(), c.table(0.8)],
        )
    events = pl.DataFrame(
        {
            "action": [True, False, None, True, False, None, True, False],
            "accepted": [True, True, True, False, False, False, None, None],
        }
    )
    yield (
        "events",
        lambda: [
            s.confusion(t, action_null_ok=ok)
            for t in (events, events.with_columns(action=pl.when("action").then(pl.lit("x"))))
            for ok in (True, False)
        ],
    )
    ranks = [float(x) for x in (1, 2, 3, 4, 5, 7, 8, 9, 11, 12)]
    others = {
        "mixed": [2.0, 1, 4, 3, 9, 5, 6, 6, 12, 8],
        "same": ranks,
        "turned": ranks[::-1],
        "constant": [1.0] * 10,
        "holes": [2.0, None, 4, 3, N, 5, 6, 6, 12, 8],
    }
    for kind in get_args(verdict_table.Correlation):
        for name, other in others.items():
            yield (
                f"correlation, {kind}, {name}",
                lambda k=kind, y=other: [
                    s.rank_correlation(ranks[:n], y[:n], kind=k, level=level)
                    for n, level in ((3, 0.95), (4, 0.95), (5, 0.5), (9, 0.95), (10, 0.9))
                    if sum(v is not None and v == v for v in y[:n]) > 2
                ],
            )


def in_blocks(ratings: np.ndarray, measure: agreement.Level) -> object:
    """Draws that do not all fit into one block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agreement, "_BLOCK", 80 * len(np.unique(ratings)) * 7)
        return s.krippendorff_alpha(ratings, measure=measure, resamples=FEW)


CASES = dict((*of_groups(), *of_judges()))


@pytest.mark.parametrize("kind", kinds(CASES))
def test_a_protocol_gives_what_it_gave(kind: str) -> None:
    assert not changed(FROZEN, CASES, kind)


if __name__ == "__main__":
    write(FROZEN, CASES)
