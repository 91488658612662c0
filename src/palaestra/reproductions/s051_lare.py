"""[51] LaRe (arXiv 2412.11120): a decoder over a few meaningful factors finds step rewards from very few episodes.

Thirty observed numbers per step; the hidden reward is made of three non-linear factors of them. The library's return
decomposition is fitted to returns alone, once on the factors, as expressions, and once on all thirty raw numbers. What
is measured is the correlation of predicted and true step rewards on fresh steps. Left out: the language model that
writes the factors; they are given.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.credit import ReturnDecomposition
from palaestra.reproductions import Outcome, reproduction

SIZE, EPISODES = 30, (10, 20, 40, 160)
WORTH = np.array([1.0, -0.7, 0.5])


def factors(x: np.ndarray) -> np.ndarray:
    """Three latent factors of the observation, float64[rows, 3]."""
    return np.stack([np.tanh(2 * x[:, 0]), np.maximum(x[:, 1], 0), np.abs(x[:, 2])], axis=-1)


def correlation(kind: str, episodes: int, rng: np.random.Generator) -> float:
    """With the true step reward, of what was fitted to so many episodes of 10 to 30 steps."""
    length = rng.integers(10, 31, episodes)
    x, episode = rng.normal(size=(length.sum(), SIZE)), np.repeat(np.arange(episodes), length)
    returns = np.bincount(episode, factors(x) @ WORTH)
    fresh = rng.normal(size=(2000, SIZE))

    def seen(raw: np.ndarray) -> np.ndarray:
        return np.hstack([raw if kind == "raw" else factors(raw), np.ones((len(raw), 1))])

    columns = seen(x[:1]).shape[1]
    if kind == "rrd":
        model = ReturnDecomposition(columns, method="rrd", steps=5)
        for _ in range(100):
            model.add(seen(x), episode, returns, rng=rng)
    else:
        model = ReturnDecomposition(columns, average=True, ridge=1e-9 if kind == "factors" else 1e-2)
        model.add(seen(x), episode, returns)
    return float(np.corrcoef(model.predict(seen(fresh)), factors(fresh) @ WORTH)[0, 1])


@reproduction(
    51,
    claim="Return decomposition over three latent factors recovers step rewards from ten episodes; over raw "
    "observations it does not.",
    baseline="the same decomposition over the thirty raw observations",
    criterion="correlation with the true step reward: factors >= 0.99 at every number of episodes; random subsets >= "
    "0.9 from 20 episodes on; raw <= 0.8 at 10 episodes",
    seeds=tuple(range(10)),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """All kinds at all numbers of episodes."""
    measured = {
        f"{kind}_{number}": float(np.mean([correlation(kind, number, np.random.default_rng(seed)) for seed in seeds]))
        for kind in ("factors", "rrd", "raw")
        for number in EPISODES
    }
    whole = min(measured[f"factors_{number}"] for number in EPISODES)
    subsets = min(measured[f"rrd_{number}"] for number in EPISODES[1:])
    return Outcome(measured, whole >= 0.99 and subsets >= 0.9 and measured["raw_10"] <= 0.8)
