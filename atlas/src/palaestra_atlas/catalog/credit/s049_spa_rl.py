"""[49] SPA-RL (arXiv 2505.20732): progress that is fitted to returns says which step earned them.

The recipe `steps` with twenty steps of three actions each and hidden values, of which only the sum is seen at the end.
The stage `progress()` fits the values of actions to all episodes so far, `spa()` makes credit of them, both by their
defaults. The paper's own use, GAE with values, is reported: here its critic lags behind and it learns slower than GRPO.
Left out: language models; every action is executed, so the bonus for it cancels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.credit import ReturnDecomposition, spa_reward
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

PLANTED = np.array([0.0, 0.1, 0.3, -0.2, 0.5, 0.05])
ARMS: dict[str, Any] = {
    "spa": {"stages": ["progress()"], "credit": "spa()"},
    "grpo": {"credit": "grpo()"},
    "spa_gae": {"stages": ["progress()", "critic(reward='spa_reward()')"], "credit": "spa(value='value')"},
}
SETTINGS: dict[str, Any] = {
    "env": {"options": {"steps": 20, "actions": 3, "decisive": 20, "pay": "sum"}},
    "train": {"iterations": 60, "group_size": 8},
}


def worked_error() -> float:
    """Rewards of three turns, and loss of their progress."""
    keys = {"episode": [0] * 3, "turn": [0, 1, 2], "agent": ["a"] * 3}
    turns = Turns(keys | {"progress": [0.2, -0.1, 0.6], "executed": [1, 0, 1]})
    reward = np.asarray(spa_reward(executed="executed").evaluate(turns))
    return float(np.abs(reward - [0.7, -0.1, 1.1]).max())


def recovery_error() -> float:
    """400 episodes of counts over six kinds of turn with planted values."""
    kinds = np.random.default_rng(0).integers(6, size=(400, 10))
    returns = PLANTED[kinds].sum(axis=1)
    model = ReturnDecomposition(6, ridge=0).add(np.eye(6)[kinds.ravel()], np.repeat(np.arange(400), 10), returns)
    return float(np.abs(model.weights - PLANTED).max())


@reproduction(
    49,
    claim="Step rewards that were fitted to returns teach twenty independent choices sooner than the return itself.",
    baseline="GRPO on the return, same policy, seeds and learning rate; SPA with values is reported",
    criterion="worked rewards to 1e-9; planted step rewards recovered to 1e-9; mean over training of the share of the "
    "best return higher than GRPO's by > 2 standard errors of the difference, paired by seed",
    seeds=tuple(range(6)),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, recovery, then the arms."""
    exact = {"worked_error": worked_error(), "recovery_error": recovery_error()}
    arms = train_arms(
        "steps", {name: SETTINGS | arm for name, arm in ARMS.items()}, seeds,
        lambda learned: {"curve": float(np.mean(learned.curve("reward"))),
                         "final": float(np.mean(learned.curve("reward")[-5:]))},
    )  # fmt: skip
    gain, error = arms.gain("spa", "grpo", "curve")
    measured = exact | arms.measured() | {"gain": gain, "standard_error": error}
    return Outcome(measured, max(exact.values()) <= 1e-9 and gain > 2 * error)
