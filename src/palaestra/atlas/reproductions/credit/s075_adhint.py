"""[75] ADHint (arXiv 2512.13095): a task that is never solved by chance is learned from prefixes of its solution.

A sequence of 8 steps with 4 actions each must be exactly right: by chance once in 65,536 episodes. Half of each group
is played after a hint, a forced prefix of the solution as long as the task is hard. Left out: language models; the
policy is a table over steps. Hints of fixed length, compared with the naive episodes in one group, do as well here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import policy_gradient, sample, softmax, uniform
from palaestra.credit import adhint, grpo, hint_prefix, hint_ratio

STEPS, ACTIONS, GROUP, ITERATIONS, RATE = 8, 4, 8, 300, 0.5
LOW, HIGH, NOISE = 0.1, 0.9, 0.1
SOLUTION = [2, 0, 3, 1, 1, 2, 0, 3]
Kind = Literal["none", "fixed", "adaptive"]


def train(kind: Kind, seeds: Sequence[int]) -> np.ndarray:
    """Chance to solve the task without a hint at the end, per seed; exact."""
    streams = [np.random.default_rng(seed) for seed in seeds]
    runs = len(seeds)
    theta = np.zeros((runs, STEPS, ACTIONS))
    run, episode, step = (axis.ravel() for axis in np.indices((runs, GROUP, STEPS)))
    hinted = (np.arange(GROUP) >= GROUP // 2) & (kind != "none")
    keys = {"run": run.astype(str), "group": run * 0, "episode": episode, "turn": step, "agent": ["solver"] * len(run)}
    table = Turns(keys | {"hinted": hinted[episode]})
    credit = {"none": grpo("reward"), "fixed": grpo("reward"), "adaptive": adhint("reward", entropy="entropy")}
    for _ in range(ITERATIONS):
        policy = softmax(theta)
        luck = uniform(streams, GROUP, STEPS + 1)
        action = sample(policy[:, None], luck[..., :STEPS])
        solved = (action == SOLUTION).all(axis=-1)
        forced = np.zeros((runs, GROUP, STEPS), bool)
        if kind != "none":  # the naive half is played first and tells how long the hints have to be
            noise = np.repeat(NOISE * (2 * luck[..., STEPS] - 1), STEPS)
            naive = table.with_column(reward=np.repeat(solved.astype(float), STEPS), noise=noise)
            shown = np.full(len(run), HIGH)
            if kind == "adaptive":
                shown = np.asarray(hint_ratio("reward", low=LOW, high=HIGH, noise="noise").evaluate(naive))
            lengths = np.array([len(hint_prefix(SOLUTION, ratio)) for ratio in shown[::STEPS]])
            forced = (np.arange(STEPS) < lengths.reshape(runs, GROUP, 1)) & hinted[:, None]
            action = np.where(forced, SOLUTION, action)
            solved = (action == SOLUTION).all(axis=-1)
        entropy = -(policy * np.log(policy)).sum(axis=-1)[run, step]
        reward = np.repeat(solved.astype(float), STEPS)
        turns = table.with_column(reward=reward, hint=forced.ravel(), entropy=entropy)
        advantage = np.asarray(credit[kind].evaluate(turns))
        theta += RATE * policy_gradient(policy, run, step, action.ravel(), advantage) / GROUP
    return np.asarray(softmax(theta)[:, np.arange(STEPS), SOLUTION].prod(axis=-1))


@reproduction(
    75,
    claim="Hints as long as the task is hard, with right prefixes never unlearned, solve a task that is out of reach.",
    baseline="GRPO without hints; GRPO over naive and hinted episodes together, hints of fixed length 0.9",
    criterion="chance to solve without a hint at the end: >= 0.9 with adaptive hints, <= 0.05 without any",
    seeds=tuple(range(10)),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """The three arms."""
    kinds: tuple[Kind, ...] = ("none", "fixed", "adaptive")
    measured = {f"solved_{kind}": float(train(kind, seeds).mean()) for kind in kinds}
    return Outcome(measured, measured["solved_adaptive"] >= 0.9 and measured["solved_none"] <= 0.05)
