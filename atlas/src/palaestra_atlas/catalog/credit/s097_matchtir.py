"""[97] MatchTIR (arXiv 2601.10712): calls that are matched with the right ones earn their share.

A task needs five calls of different tools out of eight, in any order; the outcome is 1 only if all were made in five
turns. The policy knows the number of the turn; the env tells what was called and what would have been right. Left out:
language models, arguments of calls.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.credit import matchtir
from palaestra.rewards import call_similarity, matched
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

SETTING = {
    "env": {"make": "roles/calls", "options": {"tools": 8, "needed": 5}},
    "learn": {"lr": 0.2},
    "train": {"iterations": 60, "groups": 1, "group_size": 8},
}
MATCHED = {"calls": 'match_reward("calls", "gold")', "outcome": 'col("success") * is_last()'}


def worked_error() -> float:
    """The worked similarity, matchings and both levels of credit: largest deviation."""
    two, three = ({"name": "f", "arguments": {"x": 1, "y": 2}}, {"name": "f", "arguments": {"x": 1, "y": 3, "z": 4}})
    table = np.array([[0.9, 0.8], [0.8, 0.1]])
    gaps = [
        call_similarity(two, three) - 0.5333,
        *(matched(table) - [0.8, 0.8]),
        *(matched(table, method="greedy") - [0.9, 0.1]),
        *(matched(table, method="sinkhorn") - [0.402, 0.383]),
        *levels_error(),
    ]
    return float(np.abs(gaps).max())


def levels_error() -> np.ndarray:
    """Three episodes whose totals and returns differ in order: the credit, less the two formulas in plain NumPy."""
    paid = np.array([[1.0, 0.5, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    episode, turn = (axis.ravel() for axis in np.indices(paid.shape))
    keys = {"group": episode * 0, "episode": episode, "turn": turn, "agent": ["a"] * 9, "reward": paid.ravel()}
    to_go = np.stack([paid[:, k:] @ 0.9 ** np.arange(3 - k) for k in range(3)], axis=1)
    whole = paid.sum(axis=1, keepdims=True)
    levels = [(x - x.mean(axis=0)) / (x.std(axis=0, ddof=1) + 1e-6) for x in (whole, to_go)]
    return np.asarray(np.asarray(matchtir().evaluate(Turns(keys))) - (levels[0] + levels[1]).ravel() / 2)


@reproduction(
    97,
    claim="Paying each call for what it is matched with lets a policy learn a task that needs all of its calls.",
    baseline="GRPO on the outcome alone; GRPO on the sum of matched rewards is reported",
    criterion="worked numbers to 1e-3, both levels among them; success at the end >= 0.6 with matched calls and both "
    "levels of credit, <= 0.2 for the outcome alone, means over the seeds; should hold in 9 of 10 blocks of four",
    seeds=(0, 1, 2, 3),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers; then trained as by `palaestra train world env.make=roles/calls … credit="matchtir()"`."""
    arms = train_arms(
        "world",
        {
            "matched": SETTING | {"reward": MATCHED, "credit": "matchtir()"},
            "matched_sum": SETTING | {"reward": MATCHED, "credit": "grpo()"},
            "outcome": SETTING | {"credit": "grpo()"},
        },
        seeds,
        lambda learned: {"success": np.mean(learned.curve()[-10:])},
    )
    error = worked_error()
    holds = error <= 1e-3 and arms.mean("matched", "success") >= 0.6 and arms.mean("outcome", "success") <= 0.2
    return Outcome({"worked_error": error} | arms.measured(), holds)
