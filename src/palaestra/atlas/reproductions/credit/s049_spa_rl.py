"""[49] SPA-RL (arXiv 2505.20732): progress that is fitted to returns says which step earned them.

Twenty steps with three actions each and hidden rewards, of which only the sum is seen at the end. A linear progress
estimator is fitted online to all episodes so far; steps do not depend on each other, so γ = 0. Left
out: language models, the bonus for executed actions (all are).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import compare, policy_gradient, sample, softmax, uniform
from palaestra.credit import ReturnDecomposition, grpo, spa, spa_reward

STEPS, ACTIONS = 20, 3
GROUP, ITERATIONS, RATE, RIDGE = 8, 120, 0.5, 1.0
PLANTED = np.array([0.0, 0.1, 0.3, -0.2, 0.5, 0.05])


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


def train(redistributes: bool, seeds: Sequence[int]) -> np.ndarray:
    """Return as a share of the best possible, float64[iterations, runs]."""
    streams = [np.random.default_rng(seed) for seed in seeds]
    hidden = uniform(streams, STEPS, ACTIONS)
    theta = np.zeros(hidden.shape)
    run, episode, turn = (axis.ravel() for axis in np.indices((len(seeds), GROUP, STEPS)))
    table = Turns(
        {"run": run.astype(str), "group": run * 0, "episode": episode, "turn": turn, "agent": ["a"] * len(run)}
    )
    models = [ReturnDecomposition(STEPS * ACTIONS, ridge=RIDGE) for _ in seeds]
    credit = spa(bonus=0.0, gamma=0.0, over=("group", "turn")) if redistributes else grpo()
    table = table.with_column(valid=np.ones(len(run), bool))
    best, shares = hidden.max(axis=-1).sum(axis=-1), []
    for _ in range(ITERATIONS):
        policy = softmax(theta)
        action = sample(policy[:, None], uniform(streams, GROUP, STEPS))
        earned = np.take_along_axis(hidden[:, None], action[..., None], axis=-1)[..., 0].sum(axis=-1)
        reward = np.zeros(action.shape)
        reward[..., -1] = earned
        progress = np.zeros(action.shape)
        for number, model in enumerate(models if redistributes else []):
            x = np.eye(STEPS * ACTIONS)[(np.arange(STEPS) * ACTIONS + action[number]).ravel()]
            model.add(x, np.repeat(np.arange(GROUP), STEPS), earned[number])
            progress[number] = model.predict(x).reshape(GROUP, STEPS)
        turns = table.with_column(reward=reward.ravel(), progress=progress.ravel())
        advantage = np.asarray(credit.evaluate(turns))
        theta += RATE * policy_gradient(policy, run, turn, action.ravel(), advantage) / GROUP
        shares.append((policy * hidden).sum(axis=(1, 2)) / best)
    return np.array(shares)


@reproduction(
    49,
    claim="Step rewards that were fitted to returns teach twenty independent choices sooner than the return itself.",
    baseline="GRPO on the return, same policy, seeds and learning rate",
    criterion="worked rewards to 1e-9; planted step rewards recovered to 1e-9; mean over training of the share "
    "of the best return higher by >= 0.03",
    seeds=tuple(range(10)),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, recovery, then both arms."""
    exact = {"worked_error": worked_error(), "recovery_error": recovery_error()}
    ours, theirs = train(True, seeds), train(False, seeds)
    gain, error = compare(ours.mean(axis=0), theirs.mean(axis=0))
    measured = exact | {
        "final_spa": float(ours[-1].mean()),
        "final_grpo": float(theirs[-1].mean()),
        "curve_spa": float(ours.mean()),
        "curve_grpo": float(theirs.mean()),
        "gain": gain,
        "standard_error": error,
    }
    return Outcome(measured, max(exact.values()) <= 1e-9 and gain >= 0.03)
