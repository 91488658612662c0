"""[77] SPAE (arXiv 2601.03823): credit for what a step adds to confidence and correctness ends needless checking.

Guess a number of 8: each turn the agent halves what is left or says its answer. Once one candidate is left it may go on
checking, which now and then makes it doubt again. Only the answer is rewarded, so group-mean credit hardly minds. A
probe gives accuracy and confidence 1/candidates, after the answer what it was. Left out: language models and real
probes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import policy_gradient, softmax, uniform
from palaestra.credit import dr_grpo, spae, standardise

LEVELS, HORIZON, DOUBT = 3, 16, 0.05
SURE = 0.98
"""Accuracy and confidence of the probe when one candidate is left."""
GROUPS, GROUP, ITERATIONS, RATE, EAGER = 4, 8, 150, 0.5, 1.5
GO_ON, ANSWER = 0, 1


class Play(NamedTuple):
    """One entry per turn; state is log2 of the candidates left. Then one per run: share right, turns after solving."""

    run: np.ndarray
    group: np.ndarray
    episode: np.ndarray
    turn: np.ndarray
    state: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    accuracy: np.ndarray
    confidence: np.ndarray
    right: np.ndarray
    wasted: np.ndarray

    def turns(self) -> Turns:
        """The same as a table."""
        keys = {"run": self.run.astype(str), "group": self.group, "episode": self.episode, "turn": self.turn}
        probe = {"probe_accuracy": self.accuracy, "probe_confidence": self.confidence}
        return Turns(keys | {"agent": np.full(len(self.run), "guesser"), "reward": self.reward} | probe)


def play(policy: np.ndarray, streams: Sequence[np.random.Generator]) -> Play:
    """`GROUPS` groups of episodes per run with `policy` float64[runs, levels, 2]."""
    runs = np.arange(len(policy))[:, None, None]
    luck = uniform(streams, GROUPS, GROUP, HORIZON, 2)
    state = np.full(luck.shape[:3], LEVELS)
    running, right, solved = np.ones(state.shape, bool), np.zeros(state.shape, bool), np.zeros(state.shape, bool)
    wasted = np.zeros(state.shape)
    parts = []
    for turn in range(HORIZON):
        answers = (luck[..., turn, 0] < policy[runs, state, ANSWER]) | (turn == HORIZON - 1)
        correct = answers & (luck[..., turn, 1] < 0.5**state)
        wasted += running & solved & ~answers
        doubts = (state == 0) & (luck[..., turn, 1] < DOUBT)
        after = np.where(answers, state, np.where(doubts, 1, np.maximum(state - 1, 0)))
        left = np.minimum(0.5**after, SURE)
        accuracy, confidence = np.where(answers, correct, left), np.where(answers, 1.0, left)
        run, group, episode = np.nonzero(running)
        now = [column[running] for column in (state, answers, correct, accuracy, confidence)]
        parts.append((run, group, episode, np.full(len(run), turn), *now))
        right |= running & correct
        solved |= after == 0
        running &= ~answers
        state = after
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    columns[5:7] = columns[5].astype(int), columns[6].astype(float)
    return Play(*columns, *(facts.mean(axis=(1, 2)) for facts in (right, wasted)))


def train(credit: Signal, seeds: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Per seed, mean over the last 20 iterations: share of right answers, turns after solving."""
    streams = [np.random.default_rng(seed) for seed in seeds]
    theta = np.zeros((len(seeds), LEVELS + 1, 2))
    theta[..., GO_ON] = EAGER
    right, wasted = [], []
    for _ in range(ITERATIONS):
        policy = softmax(theta)
        batch = play(policy, streams)
        advantage = np.asarray(credit.evaluate(batch.turns()))
        theta += RATE * policy_gradient(policy, batch.run, batch.state, batch.action, advantage) / (GROUPS * GROUP)
        right.append(batch.right)
        wasted.append(batch.wasted)
    return np.mean(right[-20:], axis=0), np.mean(wasted[-20:], axis=0)


@reproduction(
    77,
    claim="Credit for the change of a probe's potential makes an agent stop once it knows, without costing accuracy.",
    baseline="group-mean credit for the answer alone, standardised over the batch as SPAE is; same learning rate",
    criterion="turns after solving at least 30% fewer, share of right answers not lower by more than 0.02",
    seeds=(0, 1, 2, 3, 4),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Both arms."""
    measured: dict[str, float] = {}
    for name, credit in (("spae", spae()), ("group_mean", standardise(dr_grpo(), over=()))):
        right, wasted = train(credit, seeds)
        measured |= {f"right_{name}": float(right.mean()), f"turns_after_solving_{name}": float(wasted.mean())}
    fewer = 1 - measured["turns_after_solving_spae"] / measured["turns_after_solving_group_mean"]
    holds = fewer >= 0.3 and measured["right_spae"] >= measured["right_group_mean"] - 0.02
    return Outcome(measured | {"share_fewer": fewer}, holds)
