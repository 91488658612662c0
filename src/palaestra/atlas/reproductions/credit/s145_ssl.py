"""[145] SSL (arXiv 2601.22491): tiers of nearness to the target give a signal long before the first hit.

A Gaussian policy on a line, mean and width learned by GRPO, must hit a target that it almost never meets at the start.
The same policy gets either the hit alone or the hit with tiers. Left out: screens, mazes and the models that act there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.signals import Signal, col
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.credit import grpo
from palaestra.rewards import sweet_spot

TARGET, NEAR, START, WIDTH = 2.0, 0.1, 0.0, 0.7
EDGES, LEVELS, ALPHA = (0.1, 0.3, 0.8, 1.6), (1.0, 0.6, 0.3, 0.1), 0.5
GROUP, ITERATIONS, RATE = 16, 300, 0.05


def train(reward: Signal, seeds: Sequence[int]) -> np.ndarray:
    """Share of hits in each iteration, float64[iterations, runs]; steps follow the natural gradient."""
    streams = [np.random.default_rng(seed) for seed in seeds]
    mean, log_width = np.full(len(seeds), START), np.full(len(seeds), np.log(WIDTH))
    run, episode = (axis.ravel() for axis in np.indices((len(seeds), GROUP)))
    keys = {"run": run.astype(str), "group": run * 0, "episode": episode, "turn": run * 0, "agent": ["a"] * len(run)}
    credit, hits = grpo(reward), []
    for _ in range(ITERATIONS):
        z = np.stack([stream.normal(size=GROUP) for stream in streams])
        distance = np.abs(mean[:, None] + np.exp(log_width)[:, None] * z - TARGET)
        turns = Turns(keys | {"distance": distance.ravel(), "success": (distance < NEAR).ravel()})
        advantage = np.asarray(credit.evaluate(turns)).reshape(z.shape)
        mean = mean + RATE * np.exp(log_width) * (advantage * z).mean(axis=1)
        log_width = log_width + RATE * (advantage * (z**2 - 1)).mean(axis=1) / 2
        hits.append((distance < NEAR).mean(axis=1))
    return np.array(hits)


def order_gap() -> float:
    """Least reward of a solved minus greatest of an unsolved episode, over all distances."""
    distance = np.tile(np.linspace(0, 3, 301), 2)
    turns = Turns({"distance": distance, "success": np.repeat([True, False], 301)})
    reward = np.asarray(sweet_spot("distance", alpha=ALPHA, edges=EDGES, levels=LEVELS).evaluate(turns))
    return float(reward[:301].min() - reward[301:].max())


@reproduction(
    145,
    claim="Tiers of nearness below the reward of success keep its order and let a policy learn that hardly ever "
    "succeeds.",
    baseline="the binary reward, same policy, seeds and learning rate",
    criterion="every solved episode earns more than any unsolved one; share of hits at the end >= 0.9 with tiers, <= "
    "0.3 without",
    seeds=tuple(range(20)),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """The order of rewards, then both arms."""
    graded = train(sweet_spot("distance", alpha=ALPHA, edges=EDGES, levels=LEVELS), seeds)
    binary = train(col("success"), seeds)
    gap, final = order_gap(), {"tiers": graded[-20:].mean(), "binary": binary[-20:].mean()}
    half = np.argmax(graded.mean(axis=1) >= 0.5)
    measured = {"order_gap": gap, "half_of_hits_at_iteration_tiers": float(half)}
    measured |= {f"hits_{name}": float(value) for name, value in final.items()}
    return Outcome(measured, bool(gap > 0 and final["tiers"] >= 0.9 and final["binary"] <= 0.3))
