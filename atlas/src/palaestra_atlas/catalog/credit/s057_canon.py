"""[57] CANON (arXiv 2509.23962): compare an episode with the half of its group that differs from it in some metric.

The estimator has exact properties, and they are what is checked: between halves, credit that a metric explains goes to
the metric; within halves, none of it does; in equal parts both are group-mean credit. Left out: language models, whose
entropy or length is the metric, and for which the gain was measured.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.credit import batch_score, canon, dr_grpo
from palaestra_atlas.reproductions import Outcome, exact, reproduction

GROUPS, LARGEST = 100, 8


def group(rewards: Sequence[float], metric: Sequence[float]) -> Turns:
    """One group of episodes of one turn."""
    n = len(rewards)
    keys = {"group": [0] * n, "episode": range(n), "turn": [0] * n, "agent": ["solver"] * n}
    return Turns(keys | {"reward": rewards, "metric": metric})


EVEN = [1.0, 1, 0, 0, 1, 0], [0.9, 0.8, 0.7, 0.3, 0.2, 0.1]
ODD = [1.0, 0, 1], [0.1, 0.2, 0.3]
CASES = [
    (*EVEN, np.array([2, 2, -1, -2, 1, -2]) / 3, np.array([1, 1, -2, -1, 2, -1]) / 3),
    (*ODD, np.array([0.5, -1, 0]), np.array([0, -0.5, 0.5])),
    ([1.0, 1, 0, 0], [0.9, 0.8, 0.2, 0.1], np.array([1, 1, -1, -1]), np.zeros(4)),
]
"""Rewards and metric of a group, and its credit between and within halves: even, odd, explained by the metric."""


@exact
def both_terms() -> None:
    """The card's groups: credit between halves, within them, and half of each."""
    for rewards, metric, between, within in CASES:
        turns = group(rewards, metric)
        for mu in (1.0, 0.5, 0.0):
            credit = np.asarray(canon(metric="metric", mu=mu).evaluate(turns))
            np.testing.assert_allclose(credit, mu * between + (1 - mu) * within, atol=1e-9)


@exact
def favoured_half() -> None:
    """Short ones favoured: R - α · mean of the long half; the long half has α · R - mean of the short one."""
    turns = group([1.0, 1, 0, 0], [4.0, 2, 3, 1])
    credit = np.asarray(canon(metric="metric", alpha=0.5, favour="low").evaluate(turns))
    np.testing.assert_allclose(credit, [0.0, 0.75, -0.5, -0.25], atol=1e-9)
    credit = np.asarray(canon(metric="metric", alpha=0.5, favour="high").evaluate(turns))
    np.testing.assert_allclose(credit, [0.75, 0.0, -0.25, -0.5], atol=1e-9)


@exact
def offset() -> None:
    """β is added to the credit of the high half and taken from that of the low one, on its way between halves."""
    turns = group([1.0, 1, 0, 0], [4.0, 2, 3, 1])
    plain, moved = (np.asarray(canon(metric="metric", mu=1.0, beta=beta).evaluate(turns)) for beta in (0.0, 0.25))
    np.testing.assert_allclose(moved - plain, [0.25, -0.25, 0.25, -0.25], atol=1e-9)


@exact
def scheduled() -> None:
    """With mu=batch_score() the weight within halves is 1 - the batch's mean reward, in two batches."""
    for (rewards, metric, between, within), success in zip(CASES[:2], (0.5, 2 / 3), strict=True):
        credit = np.asarray(canon(metric="metric", mu=batch_score()).evaluate(group(rewards, metric)))
        np.testing.assert_allclose(credit, success * between + (1 - success) * within, atol=1e-9)


@exact
def an_episode_counts_once() -> None:
    """Episodes of one to three turns, rows in any order, one of them unscored: the credit of episodes of one turn."""
    (rewards, metric), once = EVEN, np.asarray(canon(metric="metric", mu=0.25).evaluate(group(*EVEN)))
    rows = np.random.default_rng(0).permutation(np.repeat(np.arange(7), [1, 2, 3, 1, 2, 3, 2]))
    frame = group([*rewards, 0.0], [*metric, 0.5]).frame[rows]
    scored = pl.when(pl.col("episode") < 6).then("reward")
    longer = Turns(frame.with_columns(turn=pl.int_range(pl.len()).over("episode"), reward=scored))
    found = np.asarray(canon("reward", metric="metric", mu=0.25).evaluate(longer))
    np.testing.assert_allclose(found, np.append(once, np.nan)[rows], atol=1e-9)


def even_groups(seed: int) -> Turns:
    """100 groups of 2, 4, 6 or 8 episodes with random rewards and metrics."""
    rng = np.random.default_rng(seed)
    sizes = 2 * rng.integers(1, LARGEST // 2 + 1, size=GROUPS)
    number = np.repeat(np.arange(GROUPS), sizes)
    episode = np.arange(len(number)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    keys = {"group": number, "episode": episode, "turn": episode * 0, "agent": ["solver"] * len(number)}
    return Turns(keys | {"reward": rng.normal(size=len(number)), "metric": rng.random(len(number))})


@reproduction(
    57,
    claim="Credit between halves gives what a metric explains to the metric, credit within halves gives it nothing, "
    "and with even halves their mean is group-mean credit.",
    baseline="Dr. GRPO (reward minus group mean)",
    criterion="half and half equal to Dr. GRPO to 1e-12 on 100 random even groups.",
    seeds=(0, 1, 2, 3, 4),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """The identity on random groups."""
    identity = 0.0
    for seed in seeds:
        turns = even_groups(seed)
        mixed, plain = (np.asarray(s.evaluate(turns)) for s in (canon(metric="metric", mu=0.5), dr_grpo()))
        identity = max(identity, float(np.abs(mixed - plain).max()))
    return Outcome({"identity_error": identity}, identity <= 1e-12)
