"""[75] ADHint (arXiv 2512.13095): a task that is never solved by chance is learned from prefixes of its solution.

A lock of 8 steps with 4 numbers each opens for one combination: by chance once in 65,536 episodes. The stage `hints`
plays half of each group after a forced prefix of the solution, as long as the task is hard. Left out: language models.
Hints of fixed length, compared with the naive episodes in one group, are reported: they do as well here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.credit import adhint, hint_ratio
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

SETTING = {
    "env": {"make": "native/lock"},
    "learn": {"lr": 0.2},
    "train": {"iterations": 60, "groups": 1, "group_size": 16},
}


def worked_error() -> float:
    """Four episodes of two turns, two of them hinted in their first turn, worked out by hand; largest deviation.

    One naive and one hinted episode succeed: both branches give ±0.7071, and p_hinted = p_naive changes nothing. The
    forced turn of the failure gets 0, that of the success exp(-|0.2 - 0.7|) = 0.6065 of its credit.
    """
    episode, turn = (axis.ravel() for axis in np.indices((4, 2)))
    hinted = episode >= 2
    keys = {"group": episode * 0, "episode": episode, "turn": turn, "agent": ["a"] * 8}
    reward = np.where((turn == 1) & np.isin(episode, (0, 2)), 1.0, 0.0)
    facts = {"hinted": hinted, "hint": hinted & (turn == 0), "entropy": np.where(turn == 0, 0.2, 0.7)}
    turns = Turns(keys | facts | {"reward": reward})
    half = np.sqrt(0.5)
    expected = np.array([half, half, -half, -half, half * np.exp(-0.5), half, 0.0, -half])
    credit = np.asarray(adhint(entropy="entropy").evaluate(turns))
    with_gap = turns.with_column(reward=np.where((turn == 1) & np.isin(episode, (0, 2, 3)), 1.0, 0.0))
    gap = np.asarray(adhint(entropy="entropy").evaluate(with_gap))[:2] - 1.5 * half  # p_hinted - p_naive = 1/2
    ratio = np.asarray(hint_ratio("score").evaluate(turns.with_column(score=np.full(8, 0.25)))) - 0.55
    return float(np.abs(np.concatenate([credit - expected, gap, ratio])).max())


@reproduction(
    75,
    claim="Hints as long as the task is hard, with right prefixes never unlearned, solve a task that is out of reach.",
    baseline="GRPO without hints; GRPO over naive and hinted episodes together, hints of fixed length 0.7",
    criterion="worked weights to 1e-4; success without a hint at the end >= 0.9 with adaptive hints, <= 0.05 without "
    "any, means over the seeds; should hold in 9 of 10 blocks of three fresh seeds",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked weights; then trained as by `palaestra train world env.make=native/lock stages="hints()" …`."""
    arms = train_arms(
        "world",
        {
            "adaptive": SETTING | {"stages": ["hints()"], "credit": "adhint()"},
            "fixed": SETTING | {"stages": ["hints(low=0.7, high=0.7)"], "credit": "grpo()"},
            "none": SETTING | {"credit": "grpo()"},
        },
        seeds,
        lambda learned: {"solved": learned.play(groups=1, group_size=200, seed=1)["success"].mean()},
    )
    error = worked_error()
    holds = error <= 1e-4 and arms.mean("adaptive", "solved") >= 0.9 and arms.mean("none", "solved") <= 0.05
    return Outcome({"worked_error": error} | arms.measured(), holds)
