"""The key-door corridor for several runs at once, tables of logits: what one trial of rewards still plays in private.

`palaestra.envs.worlds.corridor` is the env that recipes name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.atlas.reproductions.tabular import policy_gradient, softmax, uniform

CELLS, START, HORIZON = 7, 3, 24
STEPS = np.array([-1, 1, 0])
GROUP, ITERATIONS, RATE = 8, 150, 0.3


class Play(NamedTuple):
    """Episodes of all runs, one entry per turn; state is the cell, + 7 with the key in hand."""

    run: np.ndarray
    episode: np.ndarray
    turn: np.ndarray
    state: np.ndarray
    action: np.ndarray
    reward: np.ndarray

    def turns(self) -> Turns:
        """The same as a table; all episodes of a run share the start, so they are one group."""
        group, walker = np.zeros_like(self.run), np.full(len(self.run), "walker")
        where = {"run": self.run.astype(str), "group": group, "episode": self.episode, "turn": self.turn}
        return Turns(where | {"agent": walker, "state": self.state.astype(np.uint64), "reward": self.reward})


def play(policy: np.ndarray, streams: Sequence[np.random.Generator]) -> Play:
    """One group of episodes per run with `policy` float64[runs, 14, 3]."""
    runs = np.arange(len(policy))[:, None]
    luck = uniform(streams, GROUP, HORIZON)
    thresholds = policy.cumsum(axis=-1)[..., :-1]
    cell = np.full(luck.shape[:2], START)
    key, running = np.zeros_like(cell), np.ones_like(cell, dtype=bool)
    parts = []
    for turn in range(HORIZON):
        state = cell + CELLS * key
        action = (luck[..., turn, None] > thresholds[runs, state]).sum(axis=-1)
        cell = np.clip(cell + STEPS[action], 0, CELLS - 1)
        key |= cell == 0
        opened = (cell == CELLS - 1) & (key == 1)
        run, episode = np.nonzero(running)
        now = np.full(len(run), turn)
        parts.append(Play(run, episode, now, state[running], action[running], opened[running].astype(float)))
        running &= ~opened
    return Play(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


class Curves(NamedTuple):
    """float64[iterations, runs]: share of episodes that opened the door, and their mean length."""

    success: np.ndarray
    length: np.ndarray


def train(
    credit: Signal,
    seeds: Sequence[int],
    iterations: int = ITERATIONS,
    columns: Callable[[Play, np.ndarray], Mapping[str, np.ndarray]] | None = None,
) -> Curves:
    """Policy gradient, summed over the turns of an episode and averaged over episodes.

    columns: what else the credit needs, from a batch and the policy that played it.
    """
    streams = [np.random.default_rng(seed) for seed in seeds]
    theta = np.zeros((len(seeds), 2 * CELLS, len(STEPS)))
    success, length = [], []
    for _ in range(iterations):
        policy = softmax(theta)
        batch = play(policy, streams)
        turns = batch.turns() if columns is None else batch.turns().with_column(**columns(batch, policy))
        advantage = np.asarray(credit.evaluate(turns))
        theta += RATE * policy_gradient(policy, batch.run, batch.state, batch.action, advantage) / GROUP
        success.append(np.bincount(batch.run, weights=batch.reward, minlength=len(seeds)) / GROUP)
        length.append(np.bincount(batch.run, minlength=len(seeds)) / GROUP)
    return Curves(np.array(success), np.array(length))
