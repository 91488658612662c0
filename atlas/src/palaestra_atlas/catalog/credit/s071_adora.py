"""[71] ADORA (arXiv 2602.10019): groups whose right answers are not the longest count a tenth.

What is checked is the estimator: its weight on groups worked out by hand, that truncated answers are left out, and that
a group's credit still sums to zero. Left out: language models, and whether length tells the quality of a group.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.credit import adora, grpo
from palaestra_atlas.reproductions import Outcome, reproduction

CAP = 4054
CASES = [
    ([1, 1, 0, 0], [300, 900, 500, 700], 1.0),
    ([1, 0, 0, 0], [400, 500, 700, 900], 0.1),
    ([1, 0, 0, 0], [400, 300, 300, CAP], 1.0),  # with the truncated one the mean would be 1551
]
"""Rewards, lengths, and the weight of the group worked out by hand."""


def table(rewards: np.ndarray, lengths: np.ndarray) -> Turns:
    """A group per row, an episode of one turn per column."""
    group, episode = (axis.ravel() for axis in np.indices(rewards.shape))
    keys = {"group": group, "episode": episode, "turn": group * 0, "agent": ["solver"] * len(group)}
    return Turns(keys | {"reward": rewards.ravel().astype(float), "tokens_out": lengths.ravel()})


@reproduction(
    71,
    claim="ADORA weighs a group's advantages by 1 or 0.1, by whether its longest right answer beats its mean wrong.",
    baseline="GRPO",
    criterion="worked weights exact; credit of every group sums to 0 ± 1e-9; the weight by a direct loop over 200 "
    "random groups a seed agrees in all of them, by both published rules",
    seeds=(0, 1, 2, 3, 4),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked weights, then random groups against a loop."""
    turns = table(*(np.array([case[k] for case in CASES]) for k in (0, 1)))
    weights = np.repeat([case[2] for case in CASES], 4)
    plain = np.asarray(grpo().evaluate(turns))
    measured = {"worked_error": float(np.abs(np.asarray(adora(cap=CAP).evaluate(turns)) - weights * plain).max())}
    totals, disagreements, reduced = 0.0, 0, []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        rewards, lengths = rng.integers(0, 2, (200, 6)), rng.integers(3000, 4300, (200, 6))
        turns = table(rewards, lengths)
        plain = np.asarray(grpo().evaluate(turns)).reshape(rewards.shape)
        for rule in ("llm", "vlm"):
            credit = np.asarray(adora(rule=rule, cap=CAP).evaluate(turns)).reshape(rewards.shape)
            expected = np.array([_weight(*pair, rule) for pair in zip(rewards, lengths, strict=True)])
            disagreements += int((np.abs(credit - expected[:, None] * plain) > 1e-12).any(axis=1).sum())
            totals = max(totals, float(np.abs(credit.sum(axis=1)).max()))
            reduced.append(np.mean(expected < 1))
    measured |= {"largest_total": totals, "disagreements": disagreements, "share_reduced": float(np.mean(reduced))}
    return Outcome(measured, measured["worked_error"] <= 1e-12 and totals <= 1e-9 and not disagreements)


def _weight(rewards: np.ndarray, lengths: np.ndarray, rule: str) -> float:
    right, wrong = lengths[rewards == 1], lengths[(rewards == 0) & (lengths < CAP)]
    if rule == "llm":
        worth = max(right, default=-np.inf) > (wrong.mean() if len(wrong) else -np.inf)
    else:
        worth = not len(right) or max(right) > (wrong.mean() if len(wrong) else np.inf)
    return 1.0 if worth else 0.1
