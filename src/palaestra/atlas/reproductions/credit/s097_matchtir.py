"""[97] MatchTIR (arXiv 2601.10712): calls that are matched with the right ones earn their share.

A task needs four calls of different tools out of six, in any order; the outcome is 1 only if all were made in four
turns. The policy knows the number of the turn. Matched rewards are computed by the library from the calls
themselves, as text, once for each of the possible sequences of tools. Left out: language models, arguments of calls.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

import numpy as np

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import policy_gradient, sample, softmax, uniform
from palaestra.credit import grpo, matchtir
from palaestra.rewards import call_similarity, match_reward, matched

CALLS, TOOLS = 4, 6
GROUP, ITERATIONS, RATE = 8, 120, 0.5
SOLVED = np.asarray(np.equal(np.sort(np.indices((TOOLS,) * CALLS), axis=0).T, np.arange(CALLS)).all(axis=-1)).T
"""bool[6, 6, 6, 6]: whether this sequence of tools solves the task."""
GOLD = [{"name": f"tool_{number}"} for number in range(CALLS)]


def worked_error() -> float:
    """The worked similarity, matchings and credit: largest deviation."""
    two, three = ({"name": "f", "arguments": {"x": 1, "y": 2}}, {"name": "f", "arguments": {"x": 1, "y": 3, "z": 4}})
    table = np.array([[0.9, 0.8], [0.8, 0.1]])
    keys = {"group": [0] * 6, "episode": [0] * 3 + [1] * 3, "turn": [0, 1, 2] * 2, "agent": ["a"] * 6}
    credit = matchtir().evaluate(Turns(keys | {"reward": [1, 0.5, 1, 1, 0, 0]}))
    gaps = [
        call_similarity(two, three) - 0.5333,
        *(matched(table) - [0.8, 0.8]),
        *(matched(table, method="greedy") - [0.9, 0.1]),
        *(matched(table, method="sinkhorn") - [0.402, 0.383]),
        *(np.asarray(credit) - np.repeat([0.7071, -0.7071], 3)),
    ]
    return float(np.abs(gaps).max())


def rewards_of_calls() -> np.ndarray:
    """Reward of each turn for every sequence of tools, float64[6, 6, 6, 6, 4]."""
    sequences = np.indices((TOOLS,) * CALLS).reshape(CALLS, -1).T
    episode, turn = (axis.ravel() for axis in np.indices(sequences.shape))
    calls = [json.dumps([{"name": f"tool_{tool}"}]) for tool in range(TOOLS)]
    gold = [json.dumps(GOLD) if number == 0 else None for number in turn]
    table = {"episode": episode, "turn": turn, "calls": [calls[tool] for tool in sequences.ravel()], "gold": gold}
    reward = match_reward("calls", "gold").evaluate(Turns(table))
    return np.asarray(reward).reshape((TOOLS,) * CALLS + (CALLS,))


def train(credit: Signal, seeds: Sequence[int], rewards: np.ndarray | None) -> np.ndarray:
    """Chance that all calls are right in the end, per seed; without `rewards` only the outcome is paid."""
    streams = [np.random.default_rng(seed) for seed in seeds]
    theta = np.zeros((len(seeds), CALLS, TOOLS))
    run, episode, turn = (axis.ravel() for axis in np.indices((len(seeds), GROUP, CALLS)))
    table = Turns(
        {"run": run.astype(str), "group": run * 0, "episode": episode, "turn": turn, "agent": ["a"] * len(run)}
    )
    for _ in range(ITERATIONS):
        policy = softmax(theta)
        tools = sample(policy[:, None], uniform(streams, GROUP, CALLS))
        solved = SOLVED[tuple(np.moveaxis(tools, -1, 0))]
        paid = np.zeros(tools.shape) if rewards is None else rewards[tuple(np.moveaxis(tools, -1, 0))].copy()
        paid[..., -1] += solved
        advantage = np.asarray(credit.evaluate(table.with_column(reward=paid.ravel())))
        theta += RATE * policy_gradient(policy, run, turn, tools.ravel(), advantage) / GROUP
    chances = softmax(theta)
    orders = itertools.permutations(range(CALLS))
    return np.asarray(np.sum([chances[:, np.arange(CALLS), order].prod(axis=-1) for order in orders], axis=0))


@reproduction(
    97,
    claim="Paying each call for what it is matched with lets a policy learn a task that needs all of its calls.",
    baseline="GRPO on the outcome alone; GRPO on the sum of matched rewards is reported",
    criterion="worked numbers to 1e-3; success at the end >= 0.6 with matched calls and both levels of credit, <= 0.2 "
    "for the outcome alone",
    seeds=tuple(range(20)),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, then the three arms; every call here has its own turn, and its reward does not."""
    error, rewards = worked_error(), rewards_of_calls()
    success = {
        "outcome": train(grpo(), seeds, None),
        "matched": train(matchtir(), seeds, rewards),
        "matched_sum": train(grpo(), seeds, rewards),
    }
    measured = {"worked_error": error} | {f"success_{name}": float(value.mean()) for name, value in success.items()}
    holds = error <= 1e-3 and measured["success_matched"] >= 0.6 and measured["success_outcome"] <= 0.2
    return Outcome(measured, holds)
