"""[29] OPRL, iStar (arXiv 2509.19199): a process reward model that only knows who won still finds the decisive steps.

The recipe `steps`: twelve steps with four actions; an episode succeeds if three hidden steps were right. The stage
`process_reward` trains a copy of the policy on pairs of success and failure in a group; its reference is the policy
that played; `oprl()` adds its step credit to RLOO. Left out: language models, invalid actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.credit import oprl, pairwise_logistic
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

ARMS: dict[str, Any] = {
    "oprl": {"stages": ["process_reward(lr=0.3)"], "credit": "oprl()"},
    "rloo": {"credit": "rloo()"},
    "oprl_on_grpo": {"stages": ["process_reward(lr=0.3)"], "credit": "oprl(episode=grpo())"},
    "grpo": {"credit": "grpo()"},
}
SETTINGS: dict[str, Any] = {"train": {"iterations": 50}}


def worked_error() -> float:
    """Loss of one pair, and what is left of the rewards after scaling, without the episode's part."""
    loss, _ = pairwise_logistic(np.array([0.2 / 3, 0.05 / 2]), np.array([1, 0]), np.zeros(2, int))
    keys = {"group": [0] * 5, "episode": [0] * 3 + [1] * 2, "turn": [0, 1, 2, 0, 1], "agent": ["a"] * 5}
    steps = np.array([0.1, -0.05, 0.15, 0, 0.05])
    credit = np.asarray(oprl(0.0, step="step").evaluate(Turns(keys | {"step": steps})))
    scaled = np.array([0.5, -0.25, 0.75, 0, 0.25])
    return float(max(abs(loss - 0.6725), np.abs(credit - 1.25 * (scaled - scaled.mean())).max()))


@reproduction(
    29,
    claim="Step rewards from a process reward model trained on pairs of episodes make learning faster.",
    baseline="the episode's credit alone, RLOO (the method's own choice) or GRPO, same group size and learning rate",
    criterion="worked loss and credit to 1e-4; mean success over training higher than that of RLOO by > 2 standard "
    "errors of the difference, paired by seed; on top of GRPO it is reported",
    seeds=tuple(range(6)),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, then the arms."""
    arms = train_arms(
        "steps", {name: SETTINGS | arm for name, arm in ARMS.items()}, seeds,
        lambda learned: {"curve": float(np.mean(learned.curve())), "final": float(np.mean(learned.curve()[-5:]))},
    )  # fmt: skip
    gain, standard_error = arms.gain("oprl", "rloo", "curve")
    measured = {"worked_error": worked_error()} | arms.measured()
    measured |= {"gain": gain, "standard_error": standard_error}
    measured["gain_on_grpo"] = arms.gain("oprl_on_grpo", "grpo", "curve")[0]
    return Outcome(measured, measured["worked_error"] <= 1e-4 and gain > 2 * standard_error)
