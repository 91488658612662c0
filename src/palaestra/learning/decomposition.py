"""LaRe [51] with a network: step rewards decoded from latent factors.

`palaestra.credit.decomposition` has the linear decoder, whose result is a signal; `palaestra.judges.writing` has the
factors that a model writes as code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch

from palaestra.errors import InputError, nearest
from palaestra.learning.critics import network


class NetworkDecomposition:
    """Network that predicts step rewards r̂ of `size` factors, trained on returns by (mean_t r̂_t - R/T)².

    Source: arXiv 2412.11120.

    One hidden layer of 64 and Adam at 3e-4, as published. method "rrd": the mean over a random subset of K = `steps`
    steps in place of the whole, less its sampling variance, (1 - K/T)/(K(K-1)) · Σ (r̂ - mean r̂)², so that the loss is
    that of "rd" in expectation (2111.13485). Rows of several agents in an episode: every row gets its own reward.
    """

    def __init__(
        self,
        size: int,
        *,
        hidden: Sequence[int] = (64,),
        method: Literal["rd", "rrd"] = "rd",
        steps: int = 5,
        lr: float = 3e-4,
        seed: int = 0,
    ) -> None:
        if method not in ("rd", "rrd"):
            raise InputError(f"NetworkDecomposition: method={method!r}{nearest(str(method), ['rd', 'rrd'])}")
        if steps < 2 or not lr > 0:
            raise InputError(f"NetworkDecomposition: steps={steps} must be at least 2, lr={lr} above 0")
        self.method, self.steps, self.inputs = method, steps, size
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = network(size, hidden).double()
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=lr)

    def fit(
        self,
        features: np.ndarray,
        episode: np.ndarray,
        returns: np.ndarray,
        rng: np.random.Generator,
        *,
        updates: int = 1000,
        batch: int = 64,
    ) -> NetworkDecomposition:
        """Train on `updates` random batches of episodes.

        Args:
            features: float64[rows, size].
            episode: int64[rows], its number from 0.
            returns: float64[episodes].
            rng: draws episodes and their steps.
            updates: number of batches.
            batch: episodes of a batch.

        Raises:
            InputError: a shape does not fit, an episode has no step, or a value is not finite.
        """
        inputs = self.network[0].in_features
        counts = np.bincount(episode, minlength=len(returns))
        if features.shape != (len(episode), inputs) or len(counts) != len(returns) or not counts.all():
            raise InputError(
                f"NetworkDecomposition.fit: features {features.shape} for {len(episode)} rows, {len(returns)} episodes "
                f"and {inputs} factors; give one row of factors per step, one return and some steps per episode"
            )
        if not (np.isfinite(features).all() and np.isfinite(returns).all()):
            raise InputError("NetworkDecomposition.fit: a factor or a return is not finite; leave those episodes out")
        order = np.argsort(episode, kind="stable")
        starts = np.cumsum(counts) - counts
        share = returns / counts
        for _ in range(updates):
            chosen = rng.choice(len(returns), min(batch, len(returns)), replace=False)
            taken = counts[chosen] if self.method == "rd" else np.minimum(counts[chosen], self.steps)
            owner = np.repeat(np.arange(len(chosen)), taken)
            rows = np.concatenate(
                [
                    starts[e] + (np.arange(n) if n == counts[e] else rng.choice(counts[e], n, replace=False))
                    for e, n in zip(chosen, taken, strict=True)
                ]
            )
            found = self.network(torch.from_numpy(features[order[rows]]))[:, 0]
            groups, number = torch.from_numpy(owner), torch.from_numpy(taken)
            means = torch.zeros(len(chosen), dtype=torch.double).index_add(0, groups, found) / number
            loss = (means - torch.from_numpy(share[chosen])).square()
            spread = (1 - taken / counts[chosen]) / np.maximum(taken * (taken - 1), 1)
            if spread.any():
                rest = (found - means[groups]).square() * torch.from_numpy(spread[owner])
                loss = loss - torch.zeros_like(loss).index_add(0, groups, rest)
            self.optimiser.zero_grad()
            loss.mean().backward()
            self.optimiser.step()
        return self

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Predicted reward of each step, float64[rows]; `turns.with_column(step=...)` makes a column of it."""
        with torch.no_grad():
            return np.asarray(self.network(torch.from_numpy(np.asarray(features, float)))[:, 0].numpy())

    def state_dict(self) -> dict[str, Any]:
        """State of the network and its optimiser."""
        return {"network": self.network.state_dict(), "optimiser": self.optimiser.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.network.load_state_dict(state["network"])
        self.optimiser.load_state_dict(state["optimiser"])
