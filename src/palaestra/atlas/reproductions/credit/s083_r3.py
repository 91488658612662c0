"""[83] R³ (arXiv 2601.19620): a group that failed as a whole is shown a success from the past, and the other way round.

Four tasks, 64 answers each, one of them right. The answers are drawn by tabular policies, what is replayed is found and
added by the library's `remember` and `inject`. Left out: reflection and the ranking by entropy, which need a language
model; their numbers are tested by hand.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.bandits import success, train
from palaestra.credit import grpo, inject, r3, remember

TASKS, ANSWERS, ITERATIONS, KEPT = 4, 64, 300, 4
RIGHT = np.eye(TASKS, ANSWERS, dtype=bool)


class Replay:
    """Adds one opposite episode to each group without variance; remembers what was played."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.buffer: Turns | None = None

    def __call__(self, turns: Turns) -> Turns:
        """The table with what is replayed."""
        self.buffer = remember(self.buffer, turns, last=KEPT)
        return inject(turns, self.buffer, self.rng)


@reproduction(
    83,
    claim="Replaying one past episode of the opposite outcome into groups without variance gives them a gradient and "
    "speeds learning.",
    baseline="GRPO without replay, same episodes and learning rate",
    criterion="learning-curve mean higher in at least 8 of 10 seeds",
    seeds=tuple(range(10)),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Both arms on the bandits."""
    mixed = train(r3(ranked=False), RIGHT, seeds, iterations=ITERATIONS, repair=Replay(0))
    plain = train(grpo(), RIGHT, seeds, iterations=ITERATIONS)
    ours, theirs = (success(policies, RIGHT).mean(axis=0) for policies in (mixed, plain))
    better = float(np.mean(ours > theirs))
    measured = {"curve_mean_r3": float(ours.mean()), "curve_mean_grpo": float(theirs.mean()), "seeds_better": better}
    return Outcome(measured, better >= 0.8)
