"""[104] The adversarial rubric (arXiv 2508.21476): planted flaws teach a judge what it misses, labels what it imagines.

Flaws are marks 0 to 10; mark 11 is in 30 % of the good answers and means nothing. The judge begins with rules for 0, 1,
2 and 11. Players are rules, not language models. Left out: the other path, debate and a reward model from its pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palaestra.envs.worlds.stories import told
from palaestra.judges.rubric_game import Planted, RubricGame
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

START = (0, 1, 2, 11)
ARMS: dict[str, Any] = {
    name: {
        "env": {"make": "native/stories"}, "reward": 'col("verdict")', "train": {"iterations": 60},
        "stages": [f"rubric_game(rules={list(START)}, {options})"],
    }
    for name, options in {"game": "rounds=1", "start": "rounds=0"}.items()
}  # fmt: skip


def accuracy(seed: int, checked: int, rounds: int = 5) -> float:
    """On 400 new answers, after so many rounds."""
    rng = np.random.default_rng(seed)
    data = [(frozenset(marks), all(mark > 10 for mark in marks)) for marks in told(600, 11, rng)]
    game = RubricGame(Planted(), data[:200], START, checked=checked, most=12)
    game.run(rounds, rng)
    game.labelled = data[200:]
    return float(game.accuracy(rng) or 0.0)


@reproduction(
    104,
    claim="Adversarial play finds the flaws that a rubric misses, and cannot drop a rule that condemns good answers, "
    "for it has none; labels and reflection can. A policy paid by such verdicts tells better stories.",
    baseline="the rubric of the start; adversarial play without labels",
    criterion="accuracy on new answers of 20 games a seed: start + .1 < adversarial, adversarial + .05 < with "
    "reflection, which is > .97; the policy is good .1 more often than with the first rubric, last ten iterations",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Games, then training by their verdicts."""
    games = [20 * seed + number for seed in seeds for number in range(20)]
    measured = {
        "start": float(np.mean([accuracy(seed, 0, rounds=0) for seed in games])),
        "adversarial": float(np.mean([accuracy(seed, 0) for seed in games])),
        "reflected": float(np.mean([accuracy(seed, 4) for seed in games])),
    }
    arms = train_arms("world", ARMS, seeds, lambda learned: {"good": float(np.mean(learned.curve()[-10:]))})
    gain, _ = arms.gain("game", "start", "good")
    holds = (
        measured["start"] + 0.1 < measured["adversarial"]
        and measured["adversarial"] + 0.05 < measured["reflected"]
        and measured["reflected"] > 0.97
        and gain >= 0.1
    )
    return Outcome(measured | {f"{name}_policy": arms.mean(name, "good") for name in ARMS}, bool(holds))
