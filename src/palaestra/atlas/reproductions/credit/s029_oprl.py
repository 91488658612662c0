"""[29] OPRL, iStar (arXiv 2509.19199): a process reward model that only knows who won still finds the decisive steps.

Twelve steps with four actions; an episode succeeds if three hidden steps were right. A tabular process reward model is
trained beside the policy on pairs of success and failure in a group; its reference is the policy that played. Left out:
language models, invalid actions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import compare, policy_gradient, sample, softmax, uniform
from palaestra.credit import grpo, oprl, pairwise_logistic, rloo

STEPS, ACTIONS, DECISIVE = 12, 4, 3
GROUP, ITERATIONS, RATE, RATE_MODEL, BETA = 16, 200, 0.3, 200.0, 0.05


def worked_error() -> float:
    """Loss of one pair, and what is left of the rewards after scaling, without the episode's part."""
    loss, _ = pairwise_logistic(np.array([0.2 / 3, 0.05 / 2]), np.array([1, 0]), np.zeros(2, int))
    keys = {"group": [0] * 5, "episode": [0] * 3 + [1] * 2, "turn": [0, 1, 2, 0, 1], "agent": ["a"] * 5}
    steps = np.array([0.1, -0.05, 0.15, 0, 0.05])
    credit = np.asarray(oprl(0.0, step="step").evaluate(Turns(keys | {"step": steps})))
    scaled = np.array([0.5, -0.25, 0.75, 0, 0.25])
    return float(max(abs(loss - 0.6725), np.abs(credit - 1.25 * (scaled - scaled.mean())).max()))


def train(credit: Signal, seeds: Sequence[int]) -> np.ndarray:
    """Chance of success in each iteration, float64[iterations, runs]; the process reward model only if it is asked."""
    streams = [np.random.default_rng(seed) for seed in seeds]
    runs = len(seeds)
    decisive = np.stack([stream.permutation(STEPS)[:DECISIVE] for stream in streams])
    right = np.stack([stream.integers(ACTIONS, size=DECISIVE) for stream in streams])
    theta, phi = np.zeros((runs, STEPS, ACTIONS)), np.zeros((runs, STEPS, ACTIONS))
    run, episode, turn = (axis.ravel() for axis in np.indices((runs, GROUP, STEPS)))
    table = Turns(
        {"run": run.astype(str), "group": run * 0, "episode": episode, "turn": turn, "agent": ["a"] * len(run)}
    )
    group = np.repeat(np.arange(runs), GROUP)
    process, curve = "step" in credit.needs(), []
    here = np.arange(runs)[:, None]
    for _ in range(ITERATIONS):
        policy = softmax(theta)
        action = sample(policy[:, None], uniform(streams, GROUP, STEPS))
        won = (np.take_along_axis(action, decisive[:, None], axis=-1) == right[:, None]).all(axis=-1)
        reward = np.zeros(action.shape)
        reward[..., -1] = won
        columns = {"reward": reward.ravel()}
        if process:
            taken = (here[..., None], np.arange(STEPS), action)
            ratio = np.log(softmax(phi)[taken]) - np.log(policy[taken])
            _, slope = pairwise_logistic(BETA * ratio.mean(axis=-1).ravel(), won.ravel().astype(float), group)
            per_step = np.repeat(slope, STEPS) * BETA / STEPS * runs  # the loss is a mean over pairs of all runs
            phi -= RATE_MODEL * policy_gradient(softmax(phi), run, turn, action.ravel(), per_step)
            columns["step"] = BETA * (np.log(softmax(phi)[taken]) - np.log(policy[taken])).ravel()
        advantage = np.asarray(credit.evaluate(table.with_column(**columns)))
        theta += RATE * policy_gradient(policy, run, turn, action.ravel(), advantage) / GROUP
        curve.append(policy[here, decisive, right].prod(axis=-1))
    return np.array(curve)


@reproduction(
    29,
    claim="Step rewards from a process reward model trained on pairs of episodes make learning faster.",
    baseline="the episode's credit alone, GRPO or RLOO, same group size and learning rate",
    criterion="worked numbers to 4 decimals; learning-curve mean of success higher by >= 0.05 on top "
    "of GRPO, and of RLOO, which is the method's own choice",
    seeds=tuple(range(20)),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, then both kinds of credit of the episode with and without steps."""
    error, arms = worked_error(), {
        "grpo": grpo(), "oprl_on_grpo": oprl(step="step", episode=grpo()), "rloo": rloo(), "oprl": oprl(step="step"),
    }  # fmt: skip
    curves = {name: train(credit, seeds) for name, credit in arms.items()}
    gain, standard_error = compare(curves["oprl_on_grpo"].mean(axis=0), curves["grpo"].mean(axis=0))
    measured = {"worked_error": error}
    for name, curve in curves.items():
        measured |= {f"curve_{name}": float(curve.mean()), f"final_{name}": float(curve[-1].mean())}
    measured |= {
        "gain": gain,
        "gain_on_rloo": float(curves["oprl"].mean() - curves["rloo"].mean()),
        "standard_error": standard_error,
    }
    return Outcome(measured, error <= 1e-4 and min(gain, measured["gain_on_rloo"]) >= 0.05)
