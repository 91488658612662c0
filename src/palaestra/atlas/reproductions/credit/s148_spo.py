"""[148] SPO (arXiv 2401.04056): being preferred to one's own other play leads, on average, to the minimax winner.

Three items whose preferences run in a circle. A policy over them is trained on its win rate in groups of its own items;
its average iterate is compared with the exact equilibrium. A reward model fitted to all pairs would choose the first
item, which another one beats. Left out: continuous control.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import sample, softmax, uniform
from palaestra.credit import minimax_winner, preference_exploitability, self_play_preference, win_rate

PREFERENCE = ((0.5, 0.9, 0.2), (0.1, 0.5, 0.8), (0.8, 0.2, 0.5))
START = np.array([0.6, 0.3, 0.1])
STEPS, RATE = 20_000, 0.01
GROUP, SAMPLED_STEPS, SAMPLED_RATE = 64, 1500, 0.05


def worked_error() -> float:
    """Win rates in a batch of four items, and the equilibrium."""
    turns = Turns({"group": [0] * 4, "episode": range(4), "agent": ["a"] * 4, "item": [0, 0, 1, 2]})
    rates = np.asarray(win_rate("item", preference=PREFERENCE).evaluate(turns)) - [0.5333, 0.5333, 0.3333, 0.6]
    return float(max(np.abs(rates).max(), np.abs(minimax_winner(np.array(PREFERENCE)) - [0.3, 0.3, 0.4]).max()))


def exact() -> tuple[np.ndarray, np.ndarray]:
    """Average and last iterate of multiplicative weights on the expected win rate."""
    logits, total = np.log(START), np.zeros(3)
    for _ in range(STEPS):
        mixture = np.exp(logits - logits.max())
        mixture /= mixture.sum()
        total += mixture
        logits = logits + RATE * (np.array(PREFERENCE) @ mixture)
    return total / STEPS, mixture


def sampled(seeds: Sequence[int]) -> np.ndarray:
    """Average iterate per seed, float64[runs, 3], if win rates come from groups of sampled items."""
    streams = [np.random.default_rng(seed) for seed in seeds]
    theta, total = np.tile(np.log(START), (len(seeds), 1)), np.zeros((len(seeds), 3))
    run, episode = (axis.ravel() for axis in np.indices((len(seeds), GROUP)))
    table = Turns({"run": run.astype(str), "group": run * 0, "episode": episode, "agent": ["a"] * len(run)})
    credit = self_play_preference("item", preference=PREFERENCE)
    for _ in range(SAMPLED_STEPS):
        policy = softmax(theta)
        total += policy
        item = sample(policy[:, None], uniform(streams, GROUP)).ravel()
        advantage = np.asarray(credit.evaluate(table.with_column(item=item)))
        sums = np.bincount(3 * run + item, advantage, policy.size).reshape(policy.shape)
        theta += SAMPLED_RATE * sums / (GROUP * policy)  # natural gradient of a softmax: by the chance of each item
    return np.asarray(total / SAMPLED_STEPS)


@reproduction(
    148,
    claim="Trained on win rates against itself, a policy's average iterate nears the minimax winner of cyclic "
    "preferences.",
    baseline="the item that a reward model (mean preference) would choose; the last iterate is reported",
    criterion="worked numbers to 4 decimals; exploitability of the average < 0.01 with expected win rates, and with "
    "sampled ones below half of the reward model's choice in every seed",
    seeds=(0, 1, 2, 3, 4),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, then expected and sampled win rates."""
    matrix = np.array(PREFERENCE)
    error, (average, last) = worked_error(), exact()
    chosen = np.eye(3)[matrix.mean(axis=1).argmax()]
    drawn = [preference_exploitability(mixture, matrix) for mixture in sampled(seeds)]
    measured = {
        "worked_error": error,
        "exploitability_average": preference_exploitability(average, matrix),
        "exploitability_last": preference_exploitability(last, matrix),
        "exploitability_reward_model": preference_exploitability(chosen, matrix),
        "exploitability_sampled": float(np.mean(drawn)),
    }
    measured |= {f"average_item_{number}": float(share) for number, share in enumerate(average)}
    holds = error <= 1e-4 and measured["exploitability_average"] < 0.01
    return Outcome(measured, holds and max(drawn) < measured["exploitability_reward_model"] / 2)
