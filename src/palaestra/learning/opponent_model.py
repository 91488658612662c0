"""A model of what others do next, and an oracle of what they should do: the networks of minority influence ([123]).

Both are small networks on vectors that begin uniform over the actions that were ever met. Left out: continuous actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from palaestra.errors import InputError
from palaestra.learning.critics import network


class ActionNetwork:
    """Network that predicts the actions of several agents from one state vector; uniform until it was fitted.

    Args:
        inputs: numbers of a state. agents: how many are predicted. actions: the most that there can be.
        hidden: widths of the layers between. lr: of Adam. seed: of the first parameters.
    """

    def __init__(
        self, inputs: int, agents: int, actions: int, *, hidden: Sequence[int] = (64,), lr: float = 1e-2, seed: int = 0
    ) -> None:
        self.inputs, self.agents, self.actions, self.met = inputs, agents, actions, 1
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = network(inputs, hidden, agents * actions).double()
        for parameter in self.network[-1].parameters():
            torch.nn.init.zeros_(parameter)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=lr)

    def meet(self, actions: int) -> None:
        """Raise the number of actions known so far to `actions`. Raises InputError if there are more than places."""
        if actions > self.actions:
            raise InputError(f"{actions} different actions were met: there is room for {self.actions}")
        self.met = max(self.met, actions)

    def log_probabilities(self, x: np.ndarray) -> torch.Tensor:
        """Log-probabilities [rows, agents, actions] for float64[rows, inputs], with gradient; -inf if never met."""
        logits = self.network(torch.from_numpy(x)).reshape(len(x), self.agents, self.actions)
        unknown = torch.arange(self.actions) >= self.met
        return torch.log_softmax(logits.masked_fill(unknown, -torch.inf), -1)

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Probabilities of actions, float64[rows, agents, actions]."""
        with torch.no_grad():
            return np.asarray(self.log_probabilities(x).exp().numpy())

    def cross_entropy(self, x: np.ndarray, done: np.ndarray) -> float:
        """Mean of -log p over what agents did, in nats; NaN where nothing is known. Arguments: as of `fit`."""
        if not (done >= 0).any():
            return float("nan")
        with torch.no_grad():
            return float(self._cross_entropy(x, done))

    def fit(self, x: np.ndarray, done: np.ndarray, rng: np.random.Generator, *, steps: int, batch: int) -> None:
        """Train by cross-entropy on random batches.

        x: float64[rows, inputs]. done: what each agent did, int64[rows, agents], -1 where nothing is known.
        """
        rows = np.flatnonzero((done >= 0).any(axis=1))
        for _ in range(steps if len(rows) else 0):
            some = rng.choice(rows, size=min(batch, len(rows)))
            self._step(self._cross_entropy(x[some], done[some]))

    def reinforce(self, x: np.ndarray, done: np.ndarray, worth: np.ndarray, *, steps: int, clip: float = 0.2) -> None:
        """Train by PPO's clipped steps on all rows: actions of positive advantage become more probable.

        worth: advantage of each agent's action, float64[rows, agents]; where `done` is -1 it does not count.
        """
        known = torch.from_numpy(done >= 0)
        if not bool(known.any()):
            return
        gain = torch.from_numpy(np.where(done >= 0, worth, 0.0))
        with torch.no_grad():
            before = self._chosen(x, done)
        for _ in range(steps):
            ratio = (self._chosen(x, done) - before).exp()
            surrogate = torch.minimum(ratio * gain, ratio.clamp(1 - clip, 1 + clip) * gain)
            self._step(-(surrogate * known).sum() / known.sum())

    def _chosen(self, x: np.ndarray, done: np.ndarray) -> torch.Tensor:
        places = torch.from_numpy(np.maximum(done, 0))[..., None]
        return self.log_probabilities(x).gather(-1, places)[..., 0]

    def _cross_entropy(self, x: np.ndarray, done: np.ndarray) -> torch.Tensor:
        known = torch.from_numpy(done >= 0)
        return -(self._chosen(x, done) * known).sum() / known.sum()

    def _step(self, loss: torch.Tensor) -> None:
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()

    def state_dict(self) -> dict[str, Any]:
        """Network, optimiser, and how many actions were met."""
        return {"met": self.met, "network": self.network.state_dict(), "optimiser": self.optimiser.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.met = int(state["met"])
        self.network.load_state_dict(state["network"])
        self.optimiser.load_state_dict(state["optimiser"])
