"""[168] IGPO (arXiv 2510.14967): a query earns what it added to the belief in the true answer.

Four hidden bits. In each of four turns the agent asks one of twelve questions, of which four reveal a bit each and
eight reveal nothing; then it answers, uniformly among what is still possible. The log-probability of the true answer
before each turn is known exactly. Left out: language models and search.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import policy_gradient, sample, softmax, uniform
from palaestra.credit import grpo, igpo

BITS, QUESTIONS, QUERIES = 4, 12, 4
GROUP, ITERATIONS, RATE = 8, 150, 0.5


def train(credit: Signal, seeds: Sequence[int]) -> np.ndarray:
    """Chance of a right answer, mean over the last 10 iterations, per seed. A state is the set of known bits."""
    streams = [np.random.default_rng(seed) for seed in seeds]
    runs = len(seeds)
    theta = np.zeros((runs, 2**BITS, QUESTIONS))
    run, episode, turn = (axis.ravel() for axis in np.indices((runs, GROUP, QUERIES + 1)))
    table = Turns(
        {"run": run.astype(str), "group": run * 0, "episode": episode, "turn": turn, "agent": ["a"] * len(run)}
    )
    asks = turn < QUERIES
    right = []
    for _ in range(ITERATIONS):
        policy, luck = softmax(theta), uniform(streams, GROUP, QUERIES + 1)
        known, states, asked = np.zeros((runs, GROUP), int), [], []
        for number in range(QUERIES):
            states.append(known)
            asked.append(sample(policy[np.arange(runs)[:, None], known], luck[..., number]))
            known = np.where(asked[-1] < BITS, known | 1 << np.minimum(asked[-1], BITS), known)
        states.append(known)
        state = np.stack(states, axis=-1)
        belief = np.log(0.5) * (BITS - np.bitwise_count(state))
        reward = np.zeros(state.shape)
        reward[..., -1] = luck[..., -1] < np.exp(belief[..., -1])
        turns = table.with_column(reward=reward.ravel(), gold_logprob=belief.ravel())
        advantage = np.asarray(credit.evaluate(turns))[asks]
        action = np.stack(asked, axis=-1).ravel()
        theta += RATE * policy_gradient(policy, run[asks], state[..., :-1].ravel(), action, advantage) / GROUP
        right.append(np.exp(belief[..., -1]).mean(axis=1))
    return np.asarray(np.mean(right[-10:], axis=0))


@reproduction(
    168,
    claim="Rewarding each turn with the gain in log-probability of the true answer teaches which questions to ask.",
    baseline="GRPO on the outcome alone, same group size and learning rate",
    criterion="chance of a right answer at the end >= 0.9, and at least 0.3 above GRPO",
    seeds=tuple(range(10)),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Both arms; the released code's variant is reported."""
    arms = {"igpo": igpo(), "grpo": grpo(), "igpo_code": igpo(flavour="code")}
    right = {name: float(train(credit, seeds).mean()) for name, credit in arms.items()}
    measured = {f"right_{name}": value for name, value in right.items()}
    return Outcome(measured, right["igpo"] >= 0.9 and right["igpo"] >= right["grpo"] + 0.3)
