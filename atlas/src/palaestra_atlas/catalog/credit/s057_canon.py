"""[57] CANON (arXiv 2509.23962): compare an episode with the half of its group that differs from it in some metric.

The estimator has exact properties, and they are what is checked: between halves, credit that a metric explains goes to
the metric; within halves, none of it does; in equal parts both are group-mean credit. Left out: language models, whose
entropy or length is the metric, and for which the gain was measured.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.credit import canon, dr_grpo
from palaestra_atlas.reproductions import Outcome, reproduction

GROUPS, LARGEST = 100, 8


def group(rewards: Sequence[float], metric: Sequence[float]) -> Turns:
    """One group of episodes of one turn."""
    n = len(rewards)
    keys = {"group": [0] * n, "episode": range(n), "turn": [0] * n, "agent": ["solver"] * n}
    return Turns(keys | {"reward": rewards, "metric": metric})


def worked_error() -> float:
    """Three groups worked out by hand, between and within halves: even, odd, and fully explained by the metric."""
    cases = [
        (
            ([1.0, 1, 0, 0, 1, 0], [0.9, 0.8, 0.7, 0.3, 0.2, 0.1]),
            np.array([2, 2, -1, -2, 1, -2]) / 3,
            np.array([1, 1, -2, -1, 2, -1]) / 3,
        ),
        (([1.0, 0, 1], [0.1, 0.2, 0.3]), [0.5, -1, 0], [0, -0.5, 0.5]),
        (([1.0, 1, 0, 0], [0.9, 0.8, 0.2, 0.1]), [1, 1, -1, -1], [0, 0, 0, 0]),
    ]
    worst = 0.0
    for (rewards, metric), between, within in cases:
        for mu, expected in ((1.0, between), (0.0, within)):
            credit = np.asarray(canon(metric="metric", mu=mu).evaluate(group(rewards, metric)))
            worst = max(worst, float(np.abs(credit - expected).max()))
    return worst


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
    criterion="worked advantages equal to 1e-9; half and half equal to Dr. GRPO to 1e-12 on 100 random even groups.",
    seeds=(0, 1, 2, 3, 4),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, then the identity."""
    identity = 0.0
    for seed in seeds:
        turns = even_groups(seed)
        mixed, plain = (np.asarray(s.evaluate(turns)) for s in (canon(metric="metric", mu=0.5), dr_grpo()))
        identity = max(identity, float(np.abs(mixed - plain).max()))
    error = worked_error()
    return Outcome({"worked_error": error, "identity_error": identity}, error <= 1e-9 and identity <= 1e-12)
