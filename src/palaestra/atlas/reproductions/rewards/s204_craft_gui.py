"""[204] CRAFT-GUI (arXiv 2508.11360): tasks in stages from easy to hard, and a reward in parts.

A phone on which a task of length L needs L right taps in a row, L from 1 to 6; screens are shared, so that what a short
task teaches helps a long one. The share of right taps beside success, against success alone; and tasks in stages of
equal length against tasks of all lengths from the start, with the same number of episodes: half as many, then all.
Where episodes are few the stages pay; where they are not, sampling from all is ahead, since it has its easy tasks as
well and practises the long ones for longer. Both mechanisms are reconstructions. Left out: phones.
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


def train(
    reward: Signal, stages: StagedCurriculum[int], seeds: Sequence[int], updates: int = UPDATES
) -> dict[str, np.ndarray]:
    """Chance to solve hard tasks half-way and in the end, and the share of groups without variance, for each seed."""
    streams, runs, credit = [np.random.default_rng(seed) for seed in seeds], len(seeds), grpo()
    theta = np.zeros((runs, LENGTHS, ACTIONS))
    run, group, episode = (axis.ravel() for axis in np.indices((runs, GROUPS, GROUP)))
    keys = {"run": run.astype(str), "group": group, "episode": episode, "turn": run * 0, "agent": ["a"] * run.size}
    flat, early = np.zeros(runs), np.zeros(runs)
    for update in range(updates):
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
        flat += constant.reshape(runs, -1).mean(axis=1) / updates
        advantage = np.where(needed, np.asarray(credit.evaluate(turns))[:, None], 0.0)
        index = np.repeat(run, LENGTHS), np.tile(np.arange(LENGTHS), len(run)), tap.ravel()
        theta += RATE * policy_gradient(policy, *index, advantage.ravel()) / (GROUPS * GROUP)
        if update == updates // 2 - 1:
            early = hard(theta)
    return {"early": early, "late": hard(theta), "flat": flat}


def hard(theta: np.ndarray) -> np.ndarray:
    """Chance to solve tasks of 5 and 6 steps, for each run."""
    return np.asarray(softmax(theta)[..., 0].cumprod(axis=1)[:, 4:].mean(axis=1))


def curriculum(*, staged: bool, updates: int = UPDATES) -> StagedCurriculum[int]:
    """A stage for each length, of equal time; or all tasks from the start."""
    at = [updates * stage // LENGTHS for stage in range(1, LENGTHS)] if staged else [0] * (LENGTHS - 1)
    return StagedCurriculum({n: n for n in range(1, LENGTHS + 1)}, edges=range(1, LENGTHS), at_step=at)


@reproduction(
    204,
    claim="A reward in parts leaves fewer groups without a signal than success alone, and hard tasks are learned; "
    "stages from easy to hard end ahead with 150 updates, and behind with 300.",
    baseline="success alone; tasks of all lengths from the start",
    criterion="with parts fewer groups of constant reward, and more success on tasks of 5 and 6 steps half-way; stages "
    "end ahead of all lengths at once with 150 updates and behind with 300, in every seed (in 6 of 6 fresh blocks)",
    seeds=(0, 1, 2, 3, 4),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Success alone with and without stages, the stages within half the time too; parts without."""
    plain = train(BINARY, curriculum(staged=False), seeds)
    staged = train(BINARY, curriculum(staged=True), seeds)
    short = train(BINARY, curriculum(staged=True, updates=UPDATES // 2), seeds, UPDATES // 2)
    parts = train(PARTS, curriculum(staged=False), seeds)
    measured = {
        "hard_150_uniform": plain["early"], "hard_150_staged": short["late"], "hard_150_parts": parts["early"],
        "hard_300_uniform": plain["late"], "hard_300_staged": staged["late"], "hard_300_parts": parts["late"],
        "flat_uniform": plain["flat"], "flat_staged": staged["flat"], "flat_parts": parts["flat"],
    }  # fmt: skip
    holds = (parts["flat"] < plain["flat"]) & (parts["early"] > plain["early"])
    holds &= (short["late"] > plain["early"]) & (staged["late"] < plain["late"])
    return Outcome({name: float(each.mean()) for name, each in measured.items()}, bool(holds.all()))
