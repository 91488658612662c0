"""[27] RL for machine-learning engineering agents (arXiv 2509.01684): slow actions count by their time.

Workers that run asynchronously deliver fast actions first, so a short run is trained on too many of them. Weighing each
term by its duration undoes that. Not always: once every worker has delivered many times, actions arrive in proportion
to the policy, and with a baseline the weight then does harm; that is measured as well. Left out: code-writing models.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import policy_gradient, softmax
from palaestra.credit import centre, col, duration_aware
from palaestra.rewards import ml_engineering_reward

WORKERS, BATCH, RATE = 32, 8, 1.0
PAY = np.array([0.5, 1.0])
"""Of the fast action, which takes a second, and of the slow one."""
PATTERNS = tuple(f"milestone {number}: reached" for number in range(7))


def asynchronous(credit: Signal, slow: int, budget: int, seeds: Sequence[int]) -> np.ndarray:
    """Chance of the slow action after `budget` seconds, per seed.

    Every second the workers that are done deliver, the learner makes an update for every 8 results, and those workers
    draw their next action from the new policy.
    """
    streams = [np.random.default_rng(seed) for seed in seeds]
    runs, seconds = len(seeds), np.array([1, slow])
    theta = np.zeros((runs, 1, 2))

    def draw() -> np.ndarray:
        chance = softmax(theta)[:, 0, 1]
        return np.stack([stream.random(WORKERS) for stream in streams]) < chance[:, None]

    action = draw().astype(int)
    done_at = seconds[action]
    queue = np.zeros((runs, 2 * WORKERS), int)
    waiting = np.zeros(runs, int)
    for now in range(1, budget + 1):
        done = done_at == now
        place = waiting[:, None] + np.cumsum(done, axis=1) - 1
        run, worker = np.nonzero(done)
        queue[run, place[run, worker]] = action[run, worker]
        waiting += done.sum(axis=1)
        while (waiting >= BATCH).any():
            ready = np.flatnonzero(waiting >= BATCH)
            batch = queue[ready, :BATCH].ravel()
            index = np.repeat(ready, BATCH)
            turns = Turns({"run": index.astype(str), "reward": PAY[batch], "duration": seconds[batch].astype(float)})
            advantage = np.asarray(credit.evaluate(turns))
            theta += RATE * policy_gradient(softmax(theta), index, index * 0, batch, advantage) / BATCH
            queue[ready] = np.roll(queue[ready], -BATCH, axis=1)
            waiting[ready] -= BATCH
        again = draw()
        action[done] = again[done]
        done_at[done] = now + seconds[action[done]]
    return np.asarray(softmax(theta)[:, 0, 1])


def partial_credit() -> np.ndarray:
    """Reward of programs that fail after 0, 1, … 7 milestones."""
    logs = ["\n".join(PATTERNS[:number]) for number in range(len(PATTERNS) + 1)]
    turns = Turns({"metadata": logs, "reward": [None] * len(logs)})
    return np.asarray(ml_engineering_reward(patterns=PATTERNS).evaluate(turns))


@reproduction(
    27,
    claim="In a short asynchronous run, weighing each term by its duration keeps a slow action that pays more from "
    "being crowded out; milestones order programs that fail.",
    baseline="the same policy gradient without weights",
    criterion="chance of the slow action (20 s and 50 s, 60 s to train) at least 0.1 higher with weights; rewards of "
    "failing programs strictly rising; with 400 s and a baseline the weight may hurt (reported)",
    seeds=tuple(range(30)),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Short runs, long runs, milestones."""
    raw, centred = col("reward"), centre("reward", over=())
    trials = {
        "50s": (raw, 50, 60),
        "20s": (raw, 20, 60),
        "50s_long": (raw, 50, 400),
        "50s_long_baseline": (centred, 50, 400),
    }
    measured: dict[str, float] = {}
    gain = {}
    for name, (credit, slow, budget) in trials.items():
        plain = asynchronous(credit, slow, budget, seeds).mean()
        weighted = asynchronous(duration_aware(credit), slow, budget, seeds).mean()
        gain[name] = weighted - plain
        measured |= {f"slow_{name}": float(plain), f"slow_{name}_weighted": float(weighted)}
    rewards = partial_credit()
    measured["smallest_step_between_milestones"] = float(np.diff(rewards).min())
    return Outcome(measured, bool(min(gain["50s"], gain["20s"]) >= 0.1 and (np.diff(rewards) > 0).all()))
