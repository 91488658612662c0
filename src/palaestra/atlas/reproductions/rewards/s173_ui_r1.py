"""[173] UI-R1 (arXiv 2503.21620): rules for type, place and format teach clicking; a length term shortens the answers.

A screen of 5 by 5 widgets and five action types; a softmax policy that is linear in one-hot features of what is asked
for, trained by GRPO on a part of the 125 combinations and tested on the others. It also chooses how long it thinks.
Also the card's worked length term. Left out: vision, text.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Ragged, Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import sample, softmax, uniform
from palaestra.credit import grpo
from palaestra.rewards.match.gui import length_aware, ui_r1_reward

SIDE, TYPES, LENGTHS = 5, ("click", "scroll", "type", "back", "open"), np.array([20, 40, 80, 160, 320])
TRAINED, GROUPS, GROUP, UPDATES, RATE = 90, 16, 8, 250, 3.0
COMBINATIONS = np.indices((len(TYPES), SIDE, SIDE)).reshape(3, -1).T
WIDGET = 20.0
PLAIN = ui_r1_reward("action", "gold", "point", "box", format=1.0)
SHORT = length_aware(PLAIN)


def features(tasks: np.ndarray) -> np.ndarray:
    """One-hot of type, column and row: float64[..., 15]."""
    return np.concatenate([np.eye(5)[tasks[..., part]] for part in range(3)], axis=-1)


def worked_error() -> float:
    """Deviation from the card's four rewards."""
    turns = Turns({"group": [0] * 4, "reward": [3, 3, 2, 1], "tokens_out": [40, 80, 60, 100]})
    return float(np.abs(np.asarray(length_aware("reward").evaluate(turns)) - [3.75, 3.5, 1.675, 0.9]).max())


def train(reward: Signal, seeds: Sequence[int]) -> dict[str, np.ndarray]:
    """Share of right actions on tasks that were not trained on, and mean length of an answer, for each seed."""
    streams, runs, credit = [np.random.default_rng(seed) for seed in seeds], len(seeds), grpo()
    order = np.stack([stream.permutation(len(COMBINATIONS)) for stream in streams])
    weights = np.zeros((runs, 15, 4, 5))
    run, group, episode = (axis.ravel() for axis in np.indices((runs, GROUPS, GROUP)))
    keys = {"run": run.astype(str), "group": group, "episode": episode, "turn": group * 0, "agent": ["a"] * run.size}
    for _ in range(UPDATES):
        chosen = (uniform(streams, GROUPS) * TRAINED).astype(int)
        task = COMBINATIONS[np.take_along_axis(order, chosen, axis=1)].repeat(GROUP, axis=1)
        seen = features(task)
        policy = softmax(np.einsum("rnf,rfha->rnha", seen, weights))
        did = sample(policy, uniform(streams, GROUPS * GROUP, 4))
        turns = Turns(keys | columns(task.reshape(-1, 3), did.reshape(-1, 4))).with_column(reward=reward)
        advantage = np.asarray(credit.evaluate(turns)).reshape(runs, -1)
        difference = (np.eye(5)[did] - policy) * advantage[..., None, None]
        weights += RATE * np.einsum("rnf,rnha->rfha", seen, difference) / (GROUPS * GROUP)
    unseen = COMBINATIONS[order[:, TRAINED:]]
    policy = softmax(np.einsum("rnf,rfha->rnha", features(unseen), weights))
    right = [np.take_along_axis(policy[:, :, part], unseen[..., part, None], axis=-1)[..., 0] for part in range(3)]
    hit = right[0] * np.where(unseen[..., 0] == 0, right[1] * right[2], 1.0)
    return {"hit": hit.mean(axis=1), "length": (policy[:, :, 3] * LENGTHS).sum(axis=-1).mean(axis=1)}


def columns(task: np.ndarray, did: np.ndarray) -> dict[str, object]:
    """What the reward needs, from indices of type, column, row (and length)."""
    names, corner = np.array(TYPES), task[:, 1:] * WIDGET
    point = (did[:, 1:3] + 0.5) * WIDGET
    box = np.concatenate([corner, corner + WIDGET], axis=1)
    lists = {
        name: Ragged(x.ravel(), np.full(len(x), x.shape[1])).to_series(name)
        for name, x in (("point", point), ("box", box))
    }
    return lists | {"action": names[did[:, 0]], "gold": names[task[:, 0]], "tokens_out": LENGTHS[did[:, 3]]}


@reproduction(
    173,
    claim="Rewards by rule teach type and place of an action to new combinations; the length term shortens answers.",
    baseline="the same reward without the length term",
    criterion="worked rewards exact; on unseen combinations more than 0.9 right with both, on average; with the length "
    "term at most half as long in every seed, the share of right ones being within 0.02",
    seeds=(0, 1, 2, 3, 4),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """With and without the length term."""
    plain, short = train(PLAIN, seeds), train(SHORT, seeds)
    measured = {"worked_error": worked_error()}
    measured |= {f"{name}_plain": float(value.mean()) for name, value in plain.items()}
    measured |= {f"{name}_short": float(value.mean()) for name, value in short.items()}
    hits = plain["hit"].mean(), short["hit"].mean()
    able = min(hits) > 0.9 and abs(hits[0] - hits[1]) <= 0.02
    brief = (short["length"] <= 0.5 * plain["length"]).all()
    return Outcome(measured, bool(able and brief and measured["worked_error"] < 1e-9))
