"""[62] GiGPO (arXiv 2505.10978): credit from the episode and from what happened after the same state.

A corridor of 7 cells: start in the middle, fetch the key at the left end, then open the door at the right end. The
only reward comes with the door. Play is vectorised over episodes and runs, credit is the library's `gigpo()` and
`grpo()`, policies are tabular. Left out: language models, similar (rather than equal) anchor states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import policy_gradient, softmax, uniform
from palaestra.credit import gigpo, grpo

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


def worked() -> tuple[Turns, np.ndarray]:
    """Four episodes through four states worked out by hand: the table, and episode level + step level."""
    turns = Turns(
        {
            "group": [0] * 12,
            "episode": np.repeat([0, 1, 2, 3], 3),
            "turn": [0, 1, 2] * 4,
            "agent": ["walker"] * 12,
            "state": np.array([0, 1, 2, 0, 1, 1, 0, 3, 2, 0, 3, 3], np.uint64),
            "reward": [0.0, 0.0, 10.0, 0.0, 0.0, 0.0] * 2,
        }
    )
    episode = np.repeat([0.8660, -0.8660], 3)
    step = np.array([0.8660, 1.1547, 0.0, -0.8660, -0.5774, -0.5774])
    return turns, np.tile(episode + step, 2)


@reproduction(
    62,
    claim="Comparing what followed the same state adds signal to a sparse outcome: learning is faster, then shorter.",
    baseline="GRPO: the episode level alone, same episodes per iteration and learning rate",
    criterion="worked advantages equal to 4 decimals; learning-curve mean higher than GRPO's by > 2 standard errors",
    seeds=tuple(range(10)),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, then both arms on the key-door corridor."""
    turns, expected = worked()
    error = float(np.abs(np.asarray(gigpo().evaluate(turns)) - expected).max())
    ours, theirs = train(gigpo(), seeds), train(grpo(), seeds)
    a, b = ours.success.mean(axis=0), theirs.success.mean(axis=0)
    standard_error = float(np.sqrt((a.var(ddof=1) + b.var(ddof=1)) / len(a)))
    gain = float(a.mean() - b.mean())
    measured = {
        "worked_error": error,
        "curve_mean_gigpo": float(a.mean()),
        "curve_mean_grpo": float(b.mean()),
        "gain": gain,
        "standard_error": standard_error,
        "final_length_gigpo": float(ours.length[-10:].mean()),
        "final_length_grpo": float(theirs.length[-10:].mean()),
    }
    return Outcome(measured, error <= 1e-4 and gain > 2 * standard_error)
