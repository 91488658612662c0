"""Clusters: k-means and the silhouette, in NumPy. Left out: everything else; scikit-learn has it."""

from __future__ import annotations

import numpy as np


def distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Euclidean distances, float64[n, m], between the rows of float64[n, d] and those of float64[m, d]."""
    return np.asarray(np.sqrt(np.maximum((a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T, 0.0)))


def kmeans(x: np.ndarray, k: int, restarts: int, rng: np.random.Generator) -> np.ndarray:
    """Centres of k clusters of float64[n, d] by k-means, float64[k, d]: the best of `restarts` k-means++ starts."""
    best, least = x[:k], np.inf
    for _ in range(restarts):
        centres = x[[rng.integers(len(x))]]
        while len(centres) < k:
            near = distances(x, centres).min(1) ** 2
            weight = near / near.sum() if near.sum() > 0 else None
            centres = np.vstack([centres, x[rng.choice(len(x), p=weight)]])
        for _ in range(100):
            own = distances(x, centres).argmin(1)
            size = np.bincount(own, minlength=k)
            sums = np.stack([np.bincount(own, column, minlength=k) for column in x.T], axis=1)
            moved = np.where(size[:, None] > 0, sums / np.maximum(size, 1)[:, None], centres)
            if np.allclose(moved, centres):
                break
            centres = moved
        cost = float((distances(x, centres).min(1) ** 2).sum())
        if cost < least:
            best, least = centres, cost
    return best


def silhouette(distance: np.ndarray, labels: np.ndarray) -> float:
    """Mean silhouette of labels int[n] from distances [n, n]: (b - a) / max(a, b), a own cluster, b the nearest other.

    a and b are mean distances.

    distance: float64[n, n]. labels: int[n]. NaN with one cluster.
    """
    labels = np.unique(labels, return_inverse=True)[1]
    size = np.bincount(labels)
    if len(size) < 2:
        return float("nan")
    sums = distance @ np.eye(len(size))[labels]
    rows = np.arange(len(labels))
    own = sums[rows, labels] / np.maximum(size[labels] - 1, 1)
    means = sums / size
    means[rows, labels] = np.inf
    other = means.min(1)
    score = (other - own) / np.maximum(np.maximum(own, other), 1e-300)
    return float(np.where(size[labels] > 1, score, 0.0).mean())
