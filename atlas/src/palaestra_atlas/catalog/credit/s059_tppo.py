"""[59] T-PPO (arXiv 2506.15050): windows of unfinished answers keep slots busy and still have an advantage.

Scheduling only: 64 slots, lengths of answers drawn from a lognormal (median 2000 tokens, σ = 0.8, at most 24000). A
synchronous batch waits for its longest answer; windows of 4000 tokens wait for the end of the window. Left out:
language models, and that a window is gone on with in the next iteration, so no training trial: cut off and never gone
on with, only what ends early finishes (in `corridor` nothing but successes), and a critic of what finished says 1 of
everything.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.credit import gae, successive_batching, tppo
from palaestra_atlas.reproductions import Outcome, reproduction

SLOTS, WINDOW, LONGEST, MEDIAN, SPREAD, ROUNDS = 64, 4000, 24_000, 2000, 0.8, 60


def worked_error() -> float:
    """Three tokens worked out by hand: cut off, cut off with λ = 1, wrongly bootstrapped, finished, no critic yet."""

    def credit(signal: Signal, truncated: bool, reward: float, scale: float = 1.0) -> np.ndarray:
        keys = {"episode": [0] * 3, "turn": [0, 1, 2], "agent": ["a"] * 3, "truncated": [truncated] * 3}
        table = Turns(keys | {"value": scale * np.array([0.2, 0.5, 0.4]), "reward": [0.0, 0.0, reward]})
        return np.asarray(signal.evaluate(table))

    gaps = [
        credit(tppo(), True, 0.0) - [0.205, -0.1, 0.0],
        credit(tppo(lam=1.0), True, 0.0) - [0.2, -0.1, 0.0],
        credit(gae(bootstrap=0.0), True, 0.0) - [-0.156, -0.48, -0.4],
        credit(tppo(), False, 1.0) - [0.7465, 0.47, 0.6],
        credit(tppo(), True, 0.0, scale=0.0),
    ]
    return float(np.abs(gaps).max())


def busy(seed: int) -> tuple[float, float]:
    """Share of slot time in which tokens are generated: synchronous, in windows."""
    rng = np.random.default_rng(seed)

    def length() -> int:
        return int(min(rng.lognormal(np.log(MEDIAN), SPREAD), LONGEST)) + 1

    batches = np.array([[length() for _ in range(SLOTS)] for _ in range(ROUNDS)])
    synchronous = batches.sum() / (SLOTS * batches.max(axis=1).sum())
    tokens, rounds = 0, successive_batching(length, lambda left: (left - WINDOW, left <= WINDOW), slots=SLOTS)
    for _, played in zip(range(ROUNDS), rounds, strict=False):
        tokens += sum(WINDOW + min(left, 0) for left, _ in played)
    return float(synchronous), tokens / (SLOTS * WINDOW * ROUNDS)


@reproduction(
    59,
    claim="Windows with replacement keep slots busy more than twice as long, and cut-off answers have an advantage.",
    baseline="a synchronous batch; a bootstrap of 0 for cut-off answers",
    criterion="worked advantages to 1e-9, exactly none from a critic that says 0; share of busy slots at least twice "
    "the synchronous one",
    seeds=(0, 1, 2),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, then both schedules."""
    error, shares = worked_error(), np.mean([busy(seed) for seed in seeds], axis=0)
    measured = {"worked_error": error, "busy_synchronous": float(shares[0]), "busy_windows": float(shares[1])}
    measured |= {"ratio": float(shares[1] / shares[0])}
    return Outcome(measured, bool(error <= 1e-9 and shares[1] >= 2 * shares[0]))
