"""[168] IGPO (arXiv 2510.14967): a query earns what it added to the belief in the true answer.

Four hidden bits; in each of four turns the agent asks one of thirty questions, of which 26 reveal nothing, then it
answers what still fits. The stage `probe` makes the policy itself answer before every turn. Left out: language models
and search.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.credit import igpo
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

SETTING = {
    "env": {"make": "native/inquiry", "options": {"bits": 4, "questions": 30, "turns": 4, "early": False}},
    "learn": {"lr": 0.2},
    "train": {"iterations": 100, "groups": 2, "group_size": 8},
}


def worked_error() -> float:
    """Three episodes of two questions and an answer, worked out by hand: gains and outcomes are standardised apart."""
    gains, outcome = [[0.5, 0.2], [0.1, -0.2], [0.3, 0.6]], [1.0, 0.0, 1.0]
    gold = np.cumsum(np.hstack([np.zeros((3, 1)), gains]), axis=1)
    episode, turn = (axis.ravel() for axis in np.indices((3, 3)))
    keys = {"group": episode * 0, "episode": episode, "turn": turn, "agent": ["a"] * 9, "gold_logprob": gold.ravel()}
    turns = Turns(keys | {"reward": np.where(turn == 2, np.repeat(outcome, 3), 0.0)})
    expected = [1.2716, 0.4038, 0.5773, -3.2373, -2.7167, -1.1547, 1.9658, 1.7922, 0.5773]
    return float(np.abs(np.asarray(igpo().evaluate(turns)) - expected).max())


@reproduction(
    168,
    claim="Rewarding each turn with the gain in the policy's log-probability of the true answer teaches which "
    "questions to ask.",
    baseline="GRPO on the outcome alone, same episodes and learning rate",
    criterion="worked numbers to 3 decimals; chance of a right answer at the end >= 0.9 and at least 0.2 above GRPO, "
    "means over the seeds; should hold in 9 of 10 blocks of three fresh seeds",
    seeds=(10, 11, 12),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers; then trained as by `palaestra train world stages="probe()" credit="igpo()"`."""
    arms = train_arms(
        "world",
        {
            "igpo": SETTING | {"stages": ["probe()"], "credit": "igpo()"},
            "igpo_code": SETTING | {"stages": ["probe()"], "credit": 'igpo(flavour="code")'},
            "grpo": SETTING | {"credit": "grpo()"},
        },
        seeds,
        lambda learned: {"right": np.mean(learned.curve()[-8:])},
    )
    error, gain = worked_error(), arms.gain("igpo", "grpo", "right")[0]
    holds = error <= 1e-3 and arms.mean("igpo", "right") >= 0.9 and gain >= 0.2
    return Outcome({"worked_error": error} | arms.measured(), holds)
