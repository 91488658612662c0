"""[147] CoMAM (arXiv 2603.12631): an agent takes part in the team's reward as far as its own reward agrees with it.

Three agents act in turn, each seeing what the one before did: construct, profile, retrieve. Each choice has a quality
and the team succeeds with the product of the three. The profiler's local reward pays for the opposite of quality.
The outcome alone does better still where, as here, nothing is gained by the local rewards; with local rewards twice as
large the profiler is lost again. Left out: language models and their memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.signals import Signal, evaluate
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import policy_gradient, sample, softmax, uniform
from palaestra.credit import col, comam, comam_reward, grpo, ndcg, standardise

AGENTS = np.array(["construct", "profile", "retrieve"])
QUALITY = np.array([0.1, 0.4, 0.7, 1.0])
LOCAL, AGREES = 0.2, np.array([1.0, -1.0, 1.0])
"""Size of the local rewards, and whether they go with quality or against it."""
GROUP, ITERATIONS, RATE = 16, 300, 0.5


def worked() -> dict[str, float]:
    """Four episodes of two agents worked out by hand; errors of agreement and reward, and of the two edge cases."""
    local = {"a": [0.9, 0.6, 0.1, 0.3], "b": [0.1, 0.2, 0.9, 0.8]}
    keys = {"group": [0] * 8, "episode": [0, 1, 2, 3] * 2, "turn": [0] * 8, "agent": ["a"] * 4 + ["b"] * 4}
    outcomes = {"outcome": [1, 0.5, 0, 0.25] * 2, "same": [0.7] * 8, "none": [0.0] * 8}
    turns = Turns(keys | outcomes | {"reward": local["a"] + local["b"]})
    over, unit = ("group", "agent"), ("episode", "agent")
    signals = [ndcg("reward", outcome, over=over, unit=unit) for outcome in ("outcome", "same", "none")]
    agreement, same, none, reward = map(np.asarray, evaluate(turns, *signals, comam_reward(outcome="outcome")))
    return {
        "agreement_error": float(np.abs(agreement[[0, 4]] - [1.0, 0.5820]).max()),
        "reward_error": float(np.abs(reward[:4] - [1.5321, 0.9161, 0.1, 0.4580]).max()),
        "edge_error": float(np.abs(np.concatenate([same, none]) - 1).max()),
    }


def train(credit: Signal, seeds: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Per seed, over the last 20 iterations: chance of success, mean quality of the profiler's choice."""
    streams = [np.random.default_rng(seed) for seed in seeds]
    runs, levels = len(seeds), len(QUALITY)
    theta = np.zeros((runs, 3 * levels, levels))  # a state per agent and choice of the one before
    run, episode, turn = (axis.ravel() for axis in np.indices((runs, GROUP, 3)))
    keys = {"run": run.astype(str), "group": run * 0, "episode": episode, "turn": turn, "agent": AGENTS[turn]}
    table = Turns(keys)
    chance, profile = [], []
    for _ in range(ITERATIONS):
        policy, luck = softmax(theta), uniform(streams, GROUP, 4)
        states, choices, before = [], [], np.zeros((runs, GROUP), int)
        for agent in range(3):
            states.append(agent * levels + before)
            before = sample(policy[np.arange(runs)[:, None], states[-1]], luck[..., agent])
            choices.append(before)
        state, choice = np.stack(states, axis=-1), np.stack(choices, axis=-1)
        quality = QUALITY[choice]
        success = luck[..., 3] < quality.prod(axis=-1)
        local = LOCAL * np.where(AGREES > 0, quality, 1 - quality)
        turns = table.with_column(reward=local.ravel(), success=np.repeat(success, 3))
        advantage = np.asarray(credit.evaluate(turns))
        theta += RATE * policy_gradient(policy, run, state.ravel(), choice.ravel(), advantage) / GROUP
        chance.append(quality.prod(axis=-1).mean(axis=1))
        profile.append(quality[..., 1].mean(axis=1))
    return np.mean(chance[-20:], axis=0), np.mean(profile[-20:], axis=0)


@reproduction(
    147,
    claim="Adding the team's outcome in proportion to rank agreement keeps an agent whose local reward points the "
    "wrong way from ruining the team.",
    baseline="each agent trained on its local reward alone; the outcome alone for all is reported",
    criterion="worked numbers to 4 decimals, equal outcomes weigh all agents alike; success at the end higher by >= "
    "0.2 in every seed",
    seeds=(0, 1, 2, 3, 4),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, then the three arms."""
    measured = worked()
    exact = max(measured.values()) <= 1e-4
    local = standardise("reward", over=("group", "agent"), unit="episode")
    success = {}
    for name, credit in (("comam", comam()), ("local", local), ("outcome", grpo(col("success")))):
        success[name], profile = train(credit, seeds)
        measured |= {f"success_{name}": float(success[name].mean()), f"profile_quality_{name}": float(profile.mean())}
    return Outcome(measured, exact and bool((success["comam"] >= success["local"] + 0.2).all()))
