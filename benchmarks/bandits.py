"""A contextual bandit in a seat: LinUCB with a model for each of 32 arms over 64 features, beside the loop over arms.

Published code keeps a matrix for each arm, inverts it when the arm is asked, and decides one request at a time; ours
decides as many as wait at once, from inverses that it keeps. Both see the same requests, choose the same arms (checked)
and learn from the same rewards. Times are CPU times of one thread.

Run: python benchmarks/bandits.py
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import sys
from time import process_time

import numpy as np
from rich.console import Console
from rich.table import Table

from palaestra.agents import BanditPolicy

ARMS, FEATURES, BATCH, BATCHES, LOOPED = 32, 64, 256, 40, 128
LEAST = 20_000


class Loop:
    """Disjoint LinUCB as papers write it: for each arm A and b, θ = A⁻¹b, index θᵀx + α √(xᵀA⁻¹x)."""

    def __init__(self) -> None:
        self.a = [np.eye(FEATURES) for _ in range(ARMS)]
        self.b = [np.zeros(FEATURES) for _ in range(ARMS)]

    def choose(self, x: np.ndarray) -> int:
        """The arm with the largest index."""
        index = []
        for a, b in zip(self.a, self.b):
            inverse = np.linalg.inv(a)
            index.append((inverse @ b) @ x + np.sqrt(x @ inverse @ x))
        return int(np.argmax(index))

    def learn(self, x: np.ndarray, arm: int, reward: float) -> None:
        """One play."""
        self.a[arm] += np.outer(x, x)
        self.b[arm] += reward * x


def requests(rng: np.random.Generator, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Contexts of length 1, and what each arm would pay."""
    x = rng.normal(size=(number, FEATURES))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x, x @ rng.normal(size=(ARMS, FEATURES)).T + rng.normal(size=(number, ARMS)) * 0.1


def ours(x: np.ndarray, pays: np.ndarray, batch: int) -> tuple[float, list[int]]:
    """Seconds, and the arms, deciding and learning a batch at a time."""
    policy, arms = BanditPolicy(ARMS, index="linucb", features=FEATURES, shared=False), []
    start = process_time()
    for at in range(0, len(x), batch):
        part = slice(at, at + batch)
        chosen = policy.scores(policy.contexts(x[part])).argmax(1)
        policy.update(chosen, pays[part][np.arange(len(chosen)), chosen], contexts=x[part])
        arms += chosen.tolist()
    return process_time() - start, arms


def main() -> int:
    """Measure, print, and say whether the criteria hold: 0 if they all do."""
    console = Console(width=110)
    x, pays = requests(np.random.default_rng(0), BATCH * BATCHES)
    loop, looped = Loop(), []
    start = process_time()
    for seen, pay in zip(x[:LOOPED], pays[:LOOPED]):
        arm = loop.choose(seen)
        loop.learn(seen, arm, pay[arm])
        looped.append(arm)
    slow = LOOPED / (process_time() - start)
    one, arms = ours(x[: 8 * LOOPED], pays[: 8 * LOOPED], 1)
    many, _ = ours(x, pays, BATCH)
    single, fast = 8 * LOOPED / one, len(x) / many
    table = Table(f"LinUCB, {ARMS} arms x {FEATURES} features, decided and learned", "decisions/s", "ratio")
    table.add_row("a loop over arms, one request at a time", f"{slow:,.0f}", "1×")
    table.add_row("ours, one request at a time", f"{single:,.0f}", f"{single / slow:.0f}×")
    table.add_row(f"ours, {BATCH} requests at once", f"{fast:,.0f}", f"{fast / slow:.0f}×")
    console.print(table)
    same = float(np.mean([a == b for a, b in zip(arms[:LOOPED], looped)]))
    verdicts = [(f"{fast:,.0f} decisions/s, at least {LEAST:,}", fast >= LEAST),
                (f"the same arms as the loop in {same:.1%} of {LOOPED} requests", same == 1.0)]  # fmt: skip
    for text, holds in verdicts:
        console.print(f"{'PASS' if holds else 'FAIL'}  {text}")
    return 0 if all(holds for _, holds in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
