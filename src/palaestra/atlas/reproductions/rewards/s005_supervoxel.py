"""[5] Supervoxel MARL: a team of many alike agents learns from what each of them changed, hardly from their mean.

A one-dimensional volume of 64 cells, one agent each; a noisy feature tells foreground from background. Over five rounds
every agent adjusts its probability by a shared softmax table; its reward is the drop of its own cross-entropy, which is
potential-based shaping with γ = 1 and Φ = -weight · CE. A weight that grows near the boundary, the paper's point, is
measured as well. The action set is a reconstruction. Left out: medical volumes, supervoxels, a user's clicks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.signals import Signal, as_signal
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import policy_gradient, sample, softmax, uniform
from palaestra.credit import centre, mean, potential_difference

CELLS, ROUNDS, UPDATES, BATCH, RATE = 64, 5, 100, 5, 20.0
MOVES = np.array([-0.4, -0.2, -0.1, 0.1, 0.2, 0.4])
BINS, FEATURES, NOISE, LEAST = 10, 4, 1.0, 0.01
GAIN = potential_difference(
    -as_signal("weight") * as_signal("ce"), terminal=-as_signal("weight") * as_signal("last_ce")
)
REWARDS: dict[str, Signal] = {"local": GAIN, "team": mean(GAIN, over=("episode", "turn"))}


def volumes(streams: Sequence[np.random.Generator]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Truth, binned feature and distance to the boundary of each cell, [runs, batch, cells]."""
    begin = np.stack([rng.integers(8, 32, (BATCH, 1)) for rng in streams])
    length = np.stack([rng.integers(12, 28, (BATCH, 1)) for rng in streams])
    noise = np.stack([rng.normal(size=(BATCH, CELLS)) for rng in streams])
    cell = np.arange(CELLS)
    truth = (cell >= begin) & (cell < begin + length)
    feature = np.digitize(np.where(truth, 1.0, -1.0) + NOISE * noise, [-1.0, 0.0, 1.0])
    return truth, feature, np.minimum(np.abs(cell - begin), np.abs(cell - begin - length))


def cross_entropy(p: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Per cell, nats."""
    return np.asarray(-np.log(np.where(truth, p, 1 - p)))


def dice(found: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """2 |A ∩ B| / (|A| + |B|), mean over the batch."""
    both, size = (found & truth).sum(axis=-1), found.sum(axis=-1) + truth.sum(axis=-1)
    return np.asarray((2 * both / np.maximum(size, 1)).mean(axis=-1))


def train(reward: Signal, seeds: Sequence[int], *, near: float = 0.0) -> np.ndarray:
    """Mean Dice of the last ten updates, one per seed. near: how much a cell at the boundary weighs beyond one."""
    streams = [np.random.default_rng(seed) for seed in seeds]
    theta = np.zeros((len(seeds), BINS * FEATURES, len(MOVES)))
    credit = centre(reward, over="turn")
    shape = (ROUNDS, len(seeds), BATCH, CELLS)
    turn, run, episode, cell = (axis.ravel() for axis in np.indices(shape))
    keys = {"run": run.astype(str), "group": run * 0, "episode": episode, "turn": turn, "agent": cell.astype(str)}
    table, runs, scores = Turns(keys), np.arange(len(seeds))[:, None, None], []
    for _ in range(UPDATES):
        truth, feature, distance = volumes(streams)
        policy, p, parts = softmax(theta), np.full(truth.shape, 0.5), []
        for _ in range(ROUNDS):
            state = np.minimum((p * BINS).astype(int), BINS - 1) * FEATURES + feature
            action = sample(policy[runs, state], uniform(streams, BATCH, CELLS))
            parts.append((state, action, cross_entropy(p, truth)))
            p = np.clip(p + MOVES[action], LEAST, 1 - LEAST)
        state, action, ce = (np.stack(column).ravel() for column in zip(*parts, strict=True))
        last, weight = cross_entropy(p, truth), 1 + near * np.exp(-distance / 2)
        columns = {"last_ce": np.broadcast_to(last, shape).ravel(), "weight": np.broadcast_to(weight, shape).ravel()}
        advantage = np.asarray(credit.evaluate(table.with_column(ce=ce, **columns)))
        theta += RATE * policy_gradient(policy, run, state, action, advantage) / (ROUNDS * BATCH * CELLS)
        scores.append(dice(p > 0.5, truth))
    return np.asarray(np.mean(scores[-10:], axis=0))


@reproduction(
    5,
    claim="In a large team of alike agents the drop of one's own loss teaches; the team's mean drop hardly does.",
    baseline="the mean drop of all agents' loss in the round",
    criterion="Dice with the local reward at least .2 above that with the team's mean (weights near the boundary have "
    "no effect worth the name, which is reported)",
    seeds=(0, 1, 2, 3, 4),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Local, team mean, and local with a weight of three at the boundary."""
    local, team = (train(REWARDS[name], seeds) for name in ("local", "team"))
    near = train(REWARDS["local"], seeds, near=2.0)
    gap = float(local.mean() - team.mean())
    measured = {"dice_local": float(local.mean()), "dice_team": float(team.mean()), "dice_boundary": float(near.mean())}
    return Outcome(measured | {"gap": gap}, gap >= 0.2)
