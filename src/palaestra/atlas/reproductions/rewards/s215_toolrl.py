"""[215] ToolRL (arXiv 2504.13958): partial credit for a tool call's name, parameters and values.

Six requests, each with one right call among 3 tools × 5 × 5 values; a factored softmax policy in a table, GRPO. The
reward of each of the 450 pairs of request and call is computed once, by the signal itself. Left out: language models.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product

import numpy as np

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import policy_gradient, sample, softmax, uniform
from palaestra.credit import grpo
from palaestra.rewards.match.calls import tool_rl_reward

CUES, TOOLS, VALUES = 6, 3, 5
PROMPTS, GROUP, RATE, UPDATES, ENOUGH = 8, 8, 3.5, 400, 0.9
CALLS = np.array(list(product(range(TOOLS), range(VALUES), range(VALUES))))
RIGHT = np.array([(cue % TOOLS, cue % VALUES, (2 * cue + 1) % VALUES) for cue in range(CUES)])


def text(call: np.ndarray) -> str:
    """A call as JSON."""
    tool, first, second = map(int, call)
    return json.dumps([{"name": f"tool_{tool}", "arguments": {"a": first, "b": second}}])


def scores(reward: Signal) -> np.ndarray:
    """float64[cues, tools, values, values]: the reward of each call."""
    pairs = [(text(call), text(gold)) for gold in RIGHT for call in CALLS]
    turns = Turns({"calls": [call for call, _ in pairs], "gold": [gold for _, gold in pairs]})
    return np.asarray(reward.evaluate(turns)).reshape(CUES, TOOLS, VALUES, VALUES)


def updates_needed(reward: Signal, seeds: Sequence[int]) -> np.ndarray:
    """Updates until the chance of the right call is 90 %, mean over requests, for each seed."""
    table, credit = scores(reward), grpo()
    streams, runs = [np.random.default_rng(seed) for seed in seeds], len(seeds)
    heads = [np.zeros((runs, CUES, size)) for size in (TOOLS, VALUES, VALUES)]
    run, group, episode = (axis.ravel() for axis in np.indices((runs, PROMPTS, GROUP)))
    keys = {
        "run": run.astype(str),
        "group": group,
        "episode": episode,
        "turn": group * 0,
        "agent": ["caller"] * run.size,
    }
    needed = np.full(runs, np.inf)
    for update in range(UPDATES):
        policies = [softmax(theta) for theta in heads]
        right = [policy[:, np.arange(CUES), gold] for policy, gold in zip(policies, RIGHT.T, strict=True)]
        needed[np.isinf(needed) & (np.prod(right, axis=0).mean(axis=1) >= ENOUGH)] = update
        if np.isfinite(needed).all():
            break
        cue = np.repeat((uniform(streams, PROMPTS) * CUES).astype(int).ravel(), GROUP)
        luck = uniform(streams, PROMPTS, GROUP, 3).reshape(-1, 3)
        chosen = [sample(policy[run, cue], luck[:, head]) for head, policy in enumerate(policies)]
        turns = Turns(keys | {"reward": table[cue, chosen[0], chosen[1], chosen[2]]})
        advantage = np.asarray(credit.evaluate(turns))
        for theta, policy, action in zip(heads, policies, chosen, strict=True):
            theta += RATE * policy_gradient(policy, run, cue, action, advantage) / (PROMPTS * GROUP)
    return needed


@reproduction(
    215,
    claim="A tool-call reward that is split into name, parameters and values is learned faster than all or nothing.",
    baseline="the same policy and updates with the reward for exact calls only",
    criterion="the split reward needs fewer updates to 90 % right calls in every seed, on average at most 0.7 times",
    seeds=(0, 1, 2, 3, 4),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Updates with each granularity."""
    needed = {
        grain: updates_needed(tool_rl_reward("calls", "gold", granularity=grain), seeds)
        for grain in ("fine", "call", "all")
    }
    fine, whole = needed["fine"], needed["all"]
    measured = {f"updates_{grain}": float(each.mean()) for grain, each in needed.items()}
    measured |= {"ratio": float(fine.mean() / whole.mean()), "faster_in": float((fine < whole).sum())}
    return Outcome(measured, bool((fine < whole).all() and fine.mean() <= 0.7 * whole.mean()))
