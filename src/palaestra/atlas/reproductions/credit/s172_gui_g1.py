"""[172] GUI-G1 (arXiv 2505.15810): a reward for hits alone does not care how large the predicted box is.

A Gaussian policy over centre and log size points at an element of a screen; boxes are cut at the screen's edge. Large
boxes hit as often as tight ones, so with hits alone the size drifts up; IoU and edge closeness hold it. Left out:
screenshots.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.credit import gui_g1
from palaestra.rewards import gui_g1_reward, hit

SCREEN, TARGET = 100.0, np.array([40.0, 44.0, 60.0, 56.0])
START, SPREAD = np.array([35.0, 60.0, np.log(30.0), np.log(30.0)]), np.array([12.0, 12.0, 0.4, 0.4])
GROUP, ITERATIONS, RATE = 16, 400, 0.03


def boxes(centre_and_log_size: np.ndarray) -> np.ndarray:
    """(left, top, right, bottom) from (x, y, log width, log height), cut at the screen's edge; over the last axis."""
    centre, half = centre_and_log_size[..., :2], np.exp(centre_and_log_size[..., 2:]) / 2
    return np.asarray(np.clip(np.concatenate([centre - half, centre + half], axis=-1), 0.0, SCREEN))


def train(reward: Signal, seeds: Sequence[int]) -> np.ndarray:
    """What the policy predicts in the last 20 iterations, float64[20, runs, group, 4]."""
    streams = [np.random.default_rng(seed) for seed in seeds]
    mean = np.tile(START, (len(seeds), 1))
    run, episode = (axis.ravel() for axis in np.indices((len(seeds), GROUP)))
    keys = {
        "run": run.astype(str),
        "group": run * 0,
        "episode": episode,
        "turn": run * 0,
        "agent": ["clicker"] * len(run),
    }
    table = Turns(keys | {"target_box": [TARGET.tolist()] * len(run), "image_size": [[SCREEN, SCREEN]] * len(run)})
    credit, predicted = gui_g1(reward, difficulty=1.0), []
    for _ in range(ITERATIONS):
        z = np.stack([stream.normal(size=(GROUP, 4)) for stream in streams])
        box = boxes(mean[:, None] + SPREAD * z)
        turns = table.with_column(box=pl.Series(box.reshape(-1, 4)).arr.to_list())
        advantage = np.asarray(credit.evaluate(turns)).reshape(len(seeds), GROUP, 1)
        mean = mean + RATE * SPREAD * (advantage * z).sum(axis=1)
        predicted.append(box)
    return np.array(predicted[-20:])


def areas(box: np.ndarray) -> np.ndarray:
    """Share of the screen, over the last axis."""
    return np.asarray(np.prod(box[..., 2:] - box[..., :2], axis=-1) / SCREEN**2)


def overlap(box: np.ndarray) -> float:
    """Mean IoU with the target."""
    shared = np.clip(np.minimum(box[..., 2:], TARGET[2:]) - np.maximum(box[..., :2], TARGET[:2]), 0, None).prod(axis=-1)
    shared = shared / SCREEN**2
    return float((shared / (areas(box) + areas(TARGET) - shared)).mean())


@reproduction(
    172,
    claim="A reward for hits alone lets the predicted boxes grow; hit, overlap and edge closeness together hold them.",
    baseline="the hit alone, same policy, seeds and learning rate",
    criterion="mean area at the end at least twice as large with hits alone",
    seeds=tuple(range(12)),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Both arms."""
    measured = {"area_start": float(areas(boxes(START))), "area_target": float(areas(TARGET))}
    for name, reward in (("hit", hit()), ("full", gui_g1_reward())):
        box = train(reward, seeds)
        measured |= {f"area_{name}": float(areas(box).mean()), f"iou_{name}": overlap(box)}
    ratio = measured["area_hit"] / measured["area_full"]
    return Outcome(measured | {"area_ratio": ratio}, ratio >= 2)
