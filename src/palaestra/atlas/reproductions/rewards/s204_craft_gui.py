"""[204] CRAFT-GUI (arXiv 2508.11360): tasks in stages from easy to hard, and a reward in parts.

A phone on which a task of length L needs L right taps in a row, L from 1 to 6; screens are shared, so that what a short
task teaches helps a long one. The share of right taps beside success, against success alone; and, for the record, tasks
in stages against tasks of all lengths from the start, with the same number of episodes. A negative result: stages of
equal length end ahead after 150 updates (.17 against .09) and behind after 300 (.61 against .87), since uniform
sampling has its easy tasks as well and practises the long ones for longer. Both mechanisms are reconstructions. Left
out: phones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.signals import Signal, std
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import policy_gradient, sample, softmax, uniform
from palaestra.credit import grpo
from palaestra.learning.stages.tasks import StagedCurriculum
from palaestra.rewards.match.gui import hybrid_reward

LENGTHS, ACTIONS, GROUPS, GROUP, UPDATES, RATE = 6, 6, 8, 8, 300, 0.5
SPREAD = std("reward", over="group", unit="episode")
BINARY = hybrid_reward(0.0, "success", True)
PARTS = hybrid_reward("share", "success", True, weights=(0.5, 0.5))


def train(reward: Signal, stages: StagedCurriculum[int], seeds: Sequence[int]) -> dict[str, np.ndarray]:
    """Chance to solve hard tasks half-way and in the end, and the share of groups without variance, for each seed."""
    streams, runs, credit = [np.random.default_rng(seed) for seed in seeds], len(seeds), grpo()
    theta = np.zeros((runs, LENGTHS, ACTIONS))
    run, group, episode = (axis.ravel() for axis in np.indices((runs, GROUPS, GROUP)))
    keys = {"run": run.astype(str), "group": group, "episode": episode, "turn": run * 0, "agent": ["a"] * run.size}
    flat, early = np.zeros(runs), np.zeros(runs)
    for update in range(UPDATES):
        policy = softmax(theta)
        allowed = np.array(stages.tasks(update))
        length = allowed[(uniform(streams, GROUPS) * len(allowed)).astype(int)].repeat(GROUP)
        tap = sample(policy[:, None], uniform(streams, GROUPS * GROUP, LENGTHS)).reshape(-1, LENGTHS)
        needed = np.arange(LENGTHS) < length[:, None]
        right = np.cumprod(tap == 0, axis=1).astype(bool) & needed
        share = right.sum(axis=1) / length
        turns = Turns(keys | {"share": share, "success": share == 1})
        turns = turns.with_column(reward=reward)
        constant = np.asarray(SPREAD.evaluate(turns)) == 0
        flat += constant.reshape(runs, -1).mean(axis=1) / UPDATES
        advantage = np.where(needed, np.asarray(credit.evaluate(turns))[:, None], 0.0)
        index = np.repeat(run, LENGTHS), np.tile(np.arange(LENGTHS), len(run)), tap.ravel()
        theta += RATE * policy_gradient(policy, *index, advantage.ravel()) / (GROUPS * GROUP)
        if update == UPDATES // 2:
            early = hard(theta)
    return {"early": early, "late": hard(theta), "flat": flat}


def hard(theta: np.ndarray) -> np.ndarray:
    """Chance to solve tasks of 5 and 6 steps, for each run."""
    return np.asarray(softmax(theta)[..., 0].cumprod(axis=1)[:, 4:].mean(axis=1))


def curriculum(*, staged: bool) -> StagedCurriculum[int]:
    """A stage for each length, of equal time; or all tasks from the start."""
    at = [UPDATES * stage // LENGTHS for stage in range(1, LENGTHS)] if staged else [0] * (LENGTHS - 1)
    return StagedCurriculum({n: n for n in range(1, LENGTHS + 1)}, edges=range(1, LENGTHS), at_step=at)


@reproduction(
    204,
    claim="A reward in parts leaves fewer groups without a signal than success alone, and hard tasks are learned.",
    baseline="success alone; tasks of all lengths from the start",
    criterion="with parts fewer groups of constant reward, and more success on tasks of 5 and 6 steps half-way, in "
    "every seed; what stages do is reported",
    seeds=(0, 1, 2, 3, 4),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Success alone with and without stages; parts without."""
    arms = {
        "uniform": train(BINARY, curriculum(staged=False), seeds),
        "staged": train(BINARY, curriculum(staged=True), seeds),
        "parts": train(PARTS, curriculum(staged=False), seeds),
    }
    measured = {f"{what}_{arm}": float(found[what].mean()) for arm, found in arms.items() for what in found}
    plain, parts = arms["uniform"], arms["parts"]
    return Outcome(measured, bool((parts["flat"] < plain["flat"]).all() and (parts["early"] > plain["early"]).all()))
