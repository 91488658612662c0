"""[169] Sotopia-RL (arXiv 2508.03905): an outcome spread over utterances by what a judge says of each.

The arithmetic of every variant is what holds. A negative result stands beside it: with one decisive turn of six and a
mean over the batch as baseline, attributed rewards are learned no faster than the outcome for every turn, which is
already unbiased and here has little noise. Left out: dialogues, the reward model that is fitted to the rewards.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.signals import Signal, centre
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import policy_gradient, sample, softmax, uniform
from palaestra.rewards.combine.attribute import attribute

TURNS, DECISIVE, ACTIONS, EPISODES, UPDATES, RATE, ENOUGH = 6, 2, 4, 32, 200, 1.0, 0.9
WEIGHTS, PROGRESS, SCORE = [3.0, 1.0, 0.0, -1.0], [2.0, 5.0, 5.0, 8.0], 8.0
WORKED = {
    "importance": [8, 8 / 3, 0, -1],
    "normalised": [8, 8 / 3, 0, -8 / 3],
    "discount": [5.832, 6.48, 7.2, 8],
    "key": [8, 0, 0, 0],
    "uniform": [8, 8, 8, 8],
}
ARMS = {"attributed": attribute("score", "weight"), "uniform": attribute("score", how="uniform")}


def worked_error() -> float:
    """Largest deviation from the card's rewards."""
    columns = {"weight": WEIGHTS, "progress": PROGRESS, "score": [SCORE] * 4}
    turns = Turns({"episode": [0] * 4, "agent": ["a"] * 4, "turn": range(4)} | columns)
    found = {how: attribute("score", "weight", how=how) for how in WORKED}  # type: ignore[arg-type]
    errors = [np.abs(np.asarray(found[how].evaluate(turns)) - right).max() for how, right in WORKED.items()]
    progress = attribute("score", "progress", how="progress", top=10)
    errors.append(np.abs(np.asarray(progress.evaluate(turns)) - [1.6, 2.4, 0, 2.4]).max())
    return float(max(errors))


def updates_needed(reward: Signal, seeds: Sequence[int]) -> np.ndarray:
    """Updates until the decisive turn is right with probability 0.9, for each seed."""
    streams, runs = [np.random.default_rng(seed) for seed in seeds], len(seeds)
    theta = np.zeros((runs, TURNS, ACTIONS))
    run, episode, turn = (axis.ravel() for axis in np.indices((runs, EPISODES, TURNS)))
    keys = {"run": run.astype(str), "group": run * 0, "episode": episode, "turn": turn, "agent": ["a"] * run.size}
    weight, needed = np.where(turn == DECISIVE, 3.0, 0.0), np.full(runs, float(UPDATES))
    credit = centre(reward, over="turn")
    for update in range(UPDATES):
        policy = softmax(theta)
        needed = np.where(policy[:, DECISIVE, 0] >= ENOUGH, np.minimum(needed, update), needed)
        if (needed < UPDATES).all():
            break
        action = sample(policy[:, None], uniform(streams, EPISODES, TURNS))
        score = np.repeat(action[..., DECISIVE] == 0, TURNS, axis=1).ravel().astype(float)
        turns = Turns(keys | {"score": score, "weight": weight})
        theta += (
            RATE * policy_gradient(policy, run, turn, action.ravel(), np.asarray(credit.evaluate(turns))) / EPISODES
        )
    return needed


@reproduction(
    169,
    claim="An outcome is spread over turns by importance, share, discount, key turn or progress, exactly.",
    baseline="the outcome for every turn",
    criterion="worked rewards of all variants to 1e-9; no speed-up is claimed; updates that both need are reported",
    seeds=(0, 1, 2, 3, 4),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Arithmetic, then the two arms."""
    measured = {"worked_error": worked_error()}
    measured |= {f"updates_{name}": float(updates_needed(reward, seeds).mean()) for name, reward in ARMS.items()}
    return Outcome(measured, measured["worked_error"] < 1e-9)
