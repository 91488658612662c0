"""[77] SPAE (arXiv 2601.03823): credit for what a step adds to confidence and correctness ends needless checking.

Guess a number of 8: each turn the agent asks for a bit or says its answer; once all is known it may go on asking, which
now and then makes it doubt again. Only the answer is rewarded, so group-mean credit hardly minds. The stage `probe`
makes the policy answer before every turn. Left out: language models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.credit import answer_potential, spae
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

BITS = 3
SETTING = {
    "env": {"make": "native/inquiry", "options": {"bits": BITS, "questions": 4, "turns": 16, "doubt": 0.05}},
    "learn": {"lr": 0.1},
    "train": {"iterations": 110, "groups": 8, "group_size": 8},
}


def worked_error() -> float:
    """An episode of five steps whose group advantage is 1/2, against one of the same length; worked out by hand.

    The credit of the second, constant episode takes part in the batch statistics, so the terms are checked one by one.
    """
    keys = {"group": [0] * 5, "episode": [0] * 5, "turn": range(5), "agent": ["a"] * 5, "reward": [0.0] * 5}
    probes = {"probe_accuracy": [0.1, 0.4, 0.95, 0.97, 0.2], "probe_confidence": [0.2, 0.5, 0.95, 0.98, 0.8]}
    turns = Turns(keys | probes)
    potential = np.asarray(answer_potential().evaluate(turns)) - [-0.12, 0.0, 0.87875, 0.9309, -0.46]
    gained = np.asarray(spae(normalise=False, xi=1.0).evaluate(turns)) - [-0.0340, 0.0662, 0.8386, 0.0089, -0.8797]
    other = keys | {"episode": [1] * 5, "reward": [0.0] * 4 + [-1.0]}
    two = Turns({name: [*(keys | probes)[name], *(other | probes)[name]] for name in keys | probes})
    shrunk = np.asarray(spae(normalise=False, xi=0.0).evaluate(two))[:5] - 0.5 * np.array([1, 1, 1, 1, 0.6839])
    return float(np.abs(np.concatenate([potential, gained, shrunk])).max())


def turns_after_solving(learned: TrainingResult) -> dict[str, float]:
    """Of the trained team: share of right answers, questions asked when everything was known, per episode."""
    frame = learned.play(groups=64, group_size=4, seed=1).frame
    wasted = frame.filter((pl.col("known") == BITS) & pl.col("action").str.starts_with("ask")).height
    last = frame.unique(["group", "episode"], keep="last", maintain_order=True)
    return {"right": float(last["success"].mean()), "wasted": wasted / len(last)}  # type: ignore[arg-type]


@reproduction(
    77,
    claim="Credit for the change of a probe's potential makes an agent stop once it knows, without costing accuracy.",
    baseline="group-mean credit for the answer alone, standardised over the batch as SPAE is; same learning rate",
    criterion="worked potentials, gains and shrinking to 3 decimals; turns after solving at least 30% fewer, right "
    "answers not fewer by more than 0.02, means over the seeds; should hold in 9 of 10 blocks of three fresh seeds",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers; then trained as by `palaestra train world stages="probe()" credit="spae()"`."""
    arms = train_arms(
        "world",
        {
            "spae": SETTING | {"stages": ["probe()"], "credit": "spae()"},
            "group_mean": SETTING | {"credit": "standardise(dr_grpo(), over=())"},
        },
        seeds,
        turns_after_solving,
    )
    error = worked_error()
    fewer = 1 - arms.mean("spae", "wasted") / max(arms.mean("group_mean", "wasted"), 1e-9)
    holds = error <= 1e-3 and fewer >= 0.3 and arms.gain("spae", "group_mean", "right")[0] >= -0.02
    return Outcome({"worked_error": error, "share_fewer": fewer} | arms.measured(), holds)
