"""Bandits with tasks: an episode is one answer to a task, some answers are right. What some trials share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.atlas.reproductions.tabular import policy_gradient, sample, softmax, uniform


class Batch(NamedTuple):
    """Answers of all runs, one entry per episode: run, task, number in its group, answer, reward 0 or 1."""

    run: np.ndarray
    task: np.ndarray
    episode: np.ndarray
    answer: np.ndarray
    reward: np.ndarray

    def turns(self) -> Turns:
        """The same as a table, a group per task."""
        where = {"run": self.run.astype(str), "group": self.task, "episode": self.episode, "turn": self.task * 0}
        agent, task = np.full(len(self.run), "answerer"), self.task.astype(str)
        return Turns(where | {"agent": agent, "task": task, "reward": self.reward, "answer": self.answer})


def play(policy: np.ndarray, right: np.ndarray, streams: Sequence[np.random.Generator], group: int) -> Batch:
    """`group` answers to each task by `policy` float64[runs, tasks, answers]; `right` bool[tasks, answers]."""
    answer = sample(policy[:, :, None], uniform(streams, policy.shape[1], group))
    run, task, episode = (axis.ravel() for axis in np.indices(answer.shape))
    answer = answer.ravel()
    return Batch(run, task, episode, answer, right[task, answer].astype(float))


def train(
    credit: Signal,
    right: np.ndarray,
    seeds: Sequence[int],
    *,
    iterations: int,
    group: int = 8,
    rate: float = 1.0,
    repair: Callable[[Turns], Turns] | None = None,
) -> np.ndarray:
    """Policy gradient, averaged over each group; `repair` may add rows.

    Returns:
        The policy after each iteration, float64[iterations, runs, tasks, answers].
    """
    streams = [np.random.default_rng(seed) for seed in seeds]
    theta = np.zeros((len(seeds), *right.shape))
    policies = [softmax(theta)]
    for _ in range(iterations):
        turns = play(policies[-1], right, streams, group).turns()
        turns = turns if repair is None else repair(turns)
        advantage = np.asarray(credit.evaluate(turns))
        index = (turns["run"].cast(int).to_numpy(), turns["group"].to_numpy(), turns["answer"].to_numpy())
        theta += rate * policy_gradient(policies[-1], *index, advantage) / group
        policies.append(softmax(theta))
    return np.array(policies[1:])


def success(policies: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Chance of a right answer, mean over tasks: float64[iterations, runs]."""
    return np.asarray((policies * right).sum(axis=-1).mean(axis=-1))
