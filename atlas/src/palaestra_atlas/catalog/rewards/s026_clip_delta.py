"""[26] Clip and Delta (arXiv 2410.15115): a process reward that is summed is farmed; bounded, it is not.

A task of three steps of work, then the answer, which is right in 70% of the cases if all work was careful and in 20%
otherwise. Any number of turns may be spent on saying the same thing again, which changes nothing and which the process
reward model likes a little better (.90) than careful work (.85); sloppy work scores .50: the recipe `working`.
Left out: language models, on which the paper's collapse (31 to 11 on MATH) was seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.credit import return_to_go
from palaestra.rewards import clip_above, clip_and_delta, delta
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

SUMMED = {"clipped": False, "differences": False}
OPTIONS = {"summed": SUMMED, "clip": {"differences": False}, "delta": {"clipped": False}, "clip_delta": {}}
ARMS = {"success": "success_reward()"} | {
    name: f"clip_and_delta('score', {', '.join(f'{key}={value}' for key, value in options.items())})"
    for name, options in OPTIONS.items()
}
SETTINGS = {"train": {"iterations": 100}, "learn": {"lr": 0.2}}
LAST = 10


def worked_error() -> float:
    """Sums over a trajectory, and over one with ten more good steps in it, against the card."""
    plain, longer = [0.9, 0.6, 0.95, 0.9], [0.9, 0.6, 0.95, *[0.9] * 11]
    expected = {"summed": (3.35, 12.35), "clip": (-0.2, -0.2), "delta": (0.9, 0.9), "clip_delta": (0.0, 0.0)}
    error = 0.0
    for arm, sums in expected.items():
        reward = clip_and_delta(alpha=1.0, clipped=arm.startswith("clip"), differences=arm.endswith("delta"))
        for scores, target in zip((plain, longer), sums, strict=True):
            size = len(scores)
            keys = {"episode": [0] * size, "turn": range(size), "agent": ["a"] * size, "success": [False] * size}
            paid = np.asarray(reward.evaluate(Turns(keys | {"score": scores})))
            error = max(error, abs(float(paid.sum()) - target))
    return error


def scored(*scores: float) -> Turns:
    """An episode of that many steps, which failed."""
    keys = {"group": [0] * len(scores), "episode": [0] * len(scores), "turn": range(len(scores))}
    return Turns(keys | {"agent": ["a"] * len(scores), "success": [False] * len(scores), "score": scores})


@exact
def sums() -> None:
    """The card's sums, also with ten more good steps; clipping alone never rewards."""
    assert worked_error() < 1e-9
    np.testing.assert_allclose(np.asarray(clip_above("score", eta=0.8).evaluate(scored(0.9, 0.6))), [0.0, -0.2])
    np.testing.assert_allclose(np.asarray(delta("score").evaluate(scored(0.9, 0.6, 0.95, 0.9))).sum(), 0.9)


@exact
def clipped_first() -> None:
    """Rewards step by step with the defaults, half of .2, -.2, 0, 0: clipped, then differences, then weighted."""
    paid = np.asarray(clip_and_delta().evaluate(scored(0.9, 0.6, 0.95, 0.9)))
    np.testing.assert_allclose(paid, [0.1, -0.1, 0.0, 0.0], atol=1e-12)


@exact
def credit_of_a_step() -> None:
    """The return-to-go of differences from each step is its score."""
    reward = clip_and_delta(alpha=1.0, clipped=False)
    credit = np.asarray(return_to_go(reward).evaluate(scored(0.9, 0.6, 0.95, 0.9)))
    np.testing.assert_allclose(credit, [0.9, 0.6, 0.95, 0.0], atol=1e-12)


def last(learned: TrainingResult) -> dict[str, float]:
    """Success and turns of an episode over the last iterations."""
    length = np.array(learned.curve("turns")) / np.array(learned.curve("episodes"))
    return {"success": float(np.mean(learned.curve()[-LAST:])), "length": float(np.mean(length[-LAST:]))}


@reproduction(
    26,
    claim="A summed process reward is farmed by repeating what it likes; clipped, and as differences, it is not.",
    baseline="success alone; the sum of the scores",
    criterion="worked sums equal to 1e-9; in every run success of the summed reward < .1, and the mean of Clip-Delta "
    "at least that of success alone - .03",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked sums, then the five rewards."""
    error = worked_error()
    arms = train_arms("working", {name: {"reward": text, **SETTINGS} for name, text in ARMS.items()}, seeds, last)
    measured = {"worked_error": error, **arms.measured()}
    cured = measured["success_clip_delta"] >= measured["success_success"] - 0.03
    farmed = arms.values["summed"]["success"].max() < 0.1
    return Outcome(measured, error <= 1e-9 and bool(farmed) and cured)
