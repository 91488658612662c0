"""[113] Scaling via diversity (arXiv 2602.03794): effective channels count how many members differ.

Mixed pools of simulated agents with one mean accuracy whose errors are shared to different degrees: the effective
channels of what they answered go along with how often their vote is right. Left out: language models.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.evaluation.teamwork import effective_channels, vote_accuracy
from palaestra_atlas.reproductions import Outcome, reproduction

MEMBERS, SIGNAL, QUESTIONS, POOLS = 8, 0.7, 1500, 12


def pool(correlation: float, rng: np.random.Generator) -> tuple[float, float, float]:
    """Effective channels of the members' noise, accuracy of the vote, mean accuracy of a member."""
    shared, own = rng.normal(size=(QUESTIONS, 1)), rng.normal(size=(QUESTIONS, MEMBERS))
    noise = np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * own
    right = SIGNAL + noise > 0
    return effective_channels(noise.T), float(((SIGNAL + noise).mean(1) > 0).mean()), float(right.mean())


@reproduction(
    113,
    claim="Two members that differ match or beat sixteen that do not; at one mean accuracy the effective channels go "
    "along with the accuracy of the vote.",
    baseline="the number of members",
    criterion="worked numbers of K* exact to 1e-4; two at correlation 0 above sixteen at 0.9 by 0.05 or more (exact); "
    "correlation of K* with accuracy over mixed pools at least 0.9 in every seed",
    seeds=(0, 1, 2),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, closed form, mixed pools."""
    worked = {}
    for n, c, expected in ((4, 0.5, 2.9257), (4, 0.9, 1.4173), (16, 0.9, 1.7595)):
        gram = np.full((n, n), c) + (1 - c) * np.eye(n)
        worked[f"off_{n}_{c}"] = abs(effective_channels(np.linalg.cholesky(gram)) - expected)
    pair, many = vote_accuracy(SIGNAL, 2, 0.0), vote_accuracy(SIGNAL, 16, 0.9)
    levels = np.linspace(0.05, 0.95, POOLS)
    found = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        channels, accuracy, _ = np.array([pool(level, rng) for level in levels]).T
        found.append(float(np.corrcoef(channels, accuracy)[0, 1]))
    measured = worked | {"two_that_differ": pair, "sixteen_alike": many, "correlation": float(np.mean(found))}
    return Outcome(measured, max(worked.values()) < 1e-4 and pair >= many + 0.05 and min(found) >= 0.9)
