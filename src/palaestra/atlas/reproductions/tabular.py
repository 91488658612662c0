"""Softmax policies in a table and their policy gradient, for several independent runs at once.

What the trials share. `theta` is float64[runs, states, actions]; a batch is flat: one entry per turn, of any run.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def softmax(theta: np.ndarray) -> np.ndarray:
    """Probabilities, over the last axis."""
    weights = np.exp(theta - theta.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def uniform(streams: Sequence[np.random.Generator], *shape: int) -> np.ndarray:
    """Numbers in [0, 1), float64[runs, *shape], each run from its own stream."""
    return np.stack([stream.random(shape) for stream in streams])


def sample(probabilities: np.ndarray, luck: np.ndarray) -> np.ndarray:
    """int64[...]: which entry of the last axis the number in [0, 1) falls on; shapes broadcast."""
    return np.asarray((luck[..., None] >= probabilities.cumsum(axis=-1)[..., :-1]).sum(axis=-1))


def policy_gradient(
    policy: np.ndarray, run: np.ndarray, state: np.ndarray, action: np.ndarray, advantage: np.ndarray
) -> np.ndarray:
    """Σ A · ∇θ log π(a|s) over turns, for each run: W(s,a) - π(a|s) · Σ W(s,·), W = advantages by (s, a)."""
    cell = np.ravel_multi_index((run, state, action), policy.shape)
    weight = np.bincount(cell, weights=advantage, minlength=policy.size).reshape(policy.shape)
    return np.asarray(weight - policy * weight.sum(axis=-1, keepdims=True))
