"""Demonstrations: rewards from a few films of a task done right.

`segment` cuts them into steps, `step_rewards` learns to tell the steps apart ([199]; `escalate` makes one reward of its
scores), `hop_pairs` draws pairs of frames for a model of progress, `hop_model` fits it ([14]; `hop` is their label).
Left out: the vision that turns frames into features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.rewards.shaping.potential import hop


def segment(features: np.ndarray, steps: int, *, shortest: int = 2, by_length: bool = False) -> tuple[int, ...]:
    """Splits a demonstration [frames, features] into `steps` segments: tuple of the first frames of segments 2 to n.

    The cuts that minimise the sum over segments of the standard deviation, summed over features; exact, by dynamic
    programming (the paper searches recursively). features: float64[frames, features]. by_length: each segment counts by
    its length; without that, as published, short segments of noise are favoured, and `shortest` has to prevent it.

    Raises:
        InputError: that many segments of that length do not fit.

    >>> segment(np.repeat([[0.0], [5.0], [1.0]], [3, 4, 2], axis=0), 3)
    (3, 7)
    """
    frames = len(features)
    if steps < 1 or shortest < 1 or steps * shortest > frames:
        raise InputError(f"segment: {frames} frames cannot be cut into {steps} steps of at least {shortest}")
    sums = np.concatenate([np.zeros((1, features.shape[1])), np.cumsum(features - features.mean(axis=0), axis=0)])
    squares = np.concatenate(
        [np.zeros((1, features.shape[1])), np.cumsum((features - features.mean(axis=0)) ** 2, axis=0)]
    )
    begin, end = np.triu_indices(frames + 1, shortest)
    length = (end - begin)[:, None]
    spread = (squares[end] - squares[begin]) / length - ((sums[end] - sums[begin]) / length) ** 2
    cost = np.full((frames + 1, frames + 1), np.inf)
    cost[begin, end] = np.sqrt(np.maximum(spread, 0.0)).sum(axis=1) * (end - begin if by_length else 1.0)
    best, origin = cost[0], []
    for _ in range(steps - 1):
        reach = best[:, None] + cost
        origin.append(reach.argmin(axis=0))
        best = reach.min(axis=0)
    cuts, at = [], frames
    for before in reversed(origin):
        at = int(before[at])
        cuts.append(at)
    return tuple(reversed(cuts))


@dataclass(frozen=True)
class StepRewards:
    """[199] Fitted reward model: `score(features)` gives each frame's similarity to the steps 2 to n of a task.

    Perceptual rewards.

    kept: int64[steps, features], mean and deviation of those: float64[steps, features kept].
    """

    kept: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray

    def score(self, features: np.ndarray) -> np.ndarray:
        """Similarity of each frame to steps 2 to n, in (0, 1]: float64[frames, steps - 1]; for `escalate`.

        exp(-½ · mean over the kept features of ((x - mean) / deviation)²).
        """
        gap = (features[:, self.kept] - self.mean) / self.deviation
        return np.asarray(np.exp(-0.5 * (gap**2).mean(axis=-1))[:, 1:])


def step_rewards(
    demonstrations: Sequence[np.ndarray],
    steps: int,
    *,
    most: int = 32,
    alpha: float = 5.0,
    shortest: int = 2,
    by_length: bool = False,
) -> StepRewards:
    """Fits `StepRewards` to demonstrations (arrays [frames, features]), cut into steps by `segment`.

    A feature tells a step by z = α·|μ⁺ - μ⁻| - (σ⁺ + σ⁻), inside against outside of it. arXiv 1612.06699, from a
    secondary text; the mean over features in the score is a reconstruction.
    """
    labels = []
    for each in demonstrations:
        cuts = segment(each, steps, shortest=shortest, by_length=by_length)
        labels.append(np.searchsorted(cuts, np.arange(len(each)), side="right"))
    frames, label = np.concatenate(demonstrations), np.concatenate(labels)
    kept, means, deviations = [], [], []
    for step in range(steps):
        inside, outside = frames[label == step], frames[label != step]
        z = alpha * np.abs(inside.mean(axis=0) - outside.mean(axis=0)) - (inside.std(axis=0) + outside.std(axis=0))
        chosen = np.argsort(-z, kind="stable")[:most]
        kept.append(chosen)
        means.append(inside[:, chosen].mean(axis=0))
        deviations.append(np.maximum(inside[:, chosen].std(axis=0), 1e-6))
    return StepRewards(np.array(kept), np.array(means), np.array(deviations))


@dataclass(frozen=True)
class HopModel:
    """[14] Fitted progress model: `hop(before, after)` predicts relative progress between frames, in [-1, 1].

    Robo-Dopamine's.

    Kernel ridge regression with the square of the inner product of pairs, so linear in the products of their features.

    frames: float64[frames, features] of the demonstration, centred and scaled. before, after: int64[pairs]. weights:
    float64[pairs]. centre, scale: of the frames.
    """

    frames: np.ndarray
    before: np.ndarray
    after: np.ndarray
    weights: np.ndarray
    centre: np.ndarray
    scale: float

    def hop(self, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Predicted hops, float64[n], of frames float64[n, features]; either may be a single one."""
        one, other = ((np.atleast_2d(each) - self.centre) / self.scale for each in (before, after))
        near = (one @ self.frames.T)[:, self.before] + (other @ self.frames.T)[:, self.after] + 1.0
        return np.asarray(np.clip(near**2 @ self.weights, -1.0, 1.0))

    @property
    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """The demonstration's first and last frame, the anchors of progress."""
        first, last = self.frames[[0, -1]] * self.scale + self.centre
        return first, last


def hop_model(
    demonstration: np.ndarray, rng: np.random.Generator, *, pairs: int = 2000, ridge: float = 1e-3
) -> HopModel:
    """Fits a `HopModel` to pairs of frames of one demonstration, float64[frames, features].

    Progress of frame i is i / (frames - 1); pairs are drawn by `hop_pairs`, labels are `hop`'s. Where the paper has a
    vision model of 35 million pairs, this is a regression.

    >>> frames = np.eye(5)
    >>> hop_model(frames, np.random.default_rng(0)).hop(frames[1], frames[[2, 4, 0]]).round(2)
    array([ 0.33,  1.  , -1.  ])
    """
    frames = np.asarray(demonstration, float)
    centre = frames.mean(axis=0)
    scale = float(np.sqrt(np.square(frames - centre).sum(axis=1).mean())) or 1.0
    frames = (frames - centre) / scale
    progress = np.linspace(0.0, 1.0, len(frames))
    drawn, counts = np.unique(hop_pairs(progress, pairs, rng), axis=0, return_counts=True)
    before, after = drawn.T
    labels = hop("before", "after").evaluate(Turns({"before": progress[before], "after": progress[after]}))
    inner = frames @ frames.T
    kernel = (inner[before[:, None], before] + inner[after[:, None], after] + 1.0) ** 2
    weights = np.linalg.solve(kernel + np.diag(ridge * len(frames) / counts), np.nan_to_num(np.asarray(labels, float)))
    return HopModel(frames, before, after, weights, centre, scale)


def hop_pairs(
    progress: np.ndarray, number: int, rng: np.random.Generator, *, bins: int = 25, gaps: int = 4, still: float = 0.05
) -> np.ndarray:
    """Index pairs of frames (before, after) by `progress`, int64[number, 2], balanced by hop size and time gap.

    A cell of `bins` equal hops in [-1, 1] by `gaps` equal gaps in time is drawn first, of those that hold a pair, then
    a pair in it. The share `still` compares a frame with itself. Defaults are Robo-Dopamine's released code's.

    Args:
        progress: float64[frames], from 0 to 1, of one demonstration.
        number: of pairs that are drawn.
        rng: draws them.
        bins: equal parts of [-1, 1] by size of hop.
        gaps: equal parts of the gaps in time.
        still: share of pairs that compare a frame with itself.

    Raises:
        InputError: there are fewer than two frames, or progress leaves [0, 1].
    """
    progress = np.asarray(progress, float)
    if len(progress) < 2 or progress.min() < 0 or progress.max() > 1:
        raise InputError("hop_pairs: give at least two frames with progress in [0, 1]")
    before, after = np.nonzero(~np.eye(len(progress), dtype=bool))
    p, q = progress[before], progress[after]
    left = np.where(q >= p, 1 - p, p)
    size = np.divide(q - p, left, out=np.zeros_like(p), where=left > 0)
    column = np.minimum(((size + 1) / 2 * bins).astype(int), bins - 1)
    row = (np.abs(after - before) - 1) * gaps // (len(progress) - 1)
    cells, cell = np.unique(row * bins + column, return_inverse=True)
    order, counts = np.argsort(cell, kind="stable"), np.bincount(cell)
    drawn = rng.integers(len(cells), size=number)
    chosen = order[(np.cumsum(counts) - counts)[drawn] + (rng.random(number) * counts[drawn]).astype(int)]
    found = np.stack([before[chosen], after[chosen]], axis=-1)
    same = rng.random(number) < still
    found[same, 1] = found[same, 0]
    return np.asarray(found)
