"""`QNetworkPolicy`: a network for the worth of each action, acted on greedily but for some exploration.

The learner `value_decomposition` trains it. Left out: recurrent networks, duelling heads, noisy layers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch

from palaestra.agents.mlp import MLPPolicy
from palaestra.errors import InputError, nearest

if TYPE_CHECKING:
    import polars as pl

    from palaestra.envs.protocol import Observation

Method = Literal["epsilon", "boltzmann"]


class QNetworkPolicy(MLPPolicy):
    """Deep Q-network policy, an MLP with ReLU layers of sizes `hidden`; explores ε-greedily or by Boltzmann.

    method: "epsilon", with probability ε any legal action, else the best one; or "boltzmann", actions with
    probabilities proportional to exp(worth / τ). ε or τ moves linearly from `start` to `least` over the first `explore`
    updates (of the learner, one per iteration), and stays there.
    head: factor of the last layer's start; with a small one all actions are worth about 0 at first, and a low
    temperature does not begin with whatever the start prefers.
    inputs, actions, hidden, seed: as in `MLPPolicy`.

    Raises:
        InputError: there is no such method, or explore, start or least is out of range.
    """

    KIND = "q_network"
    SETTINGS = ("inputs", "actions", "hidden", "name", "method", "explore", "start", "least", "head")

    def __init__(
        self,
        inputs: int,
        actions: int,
        *,
        hidden: Sequence[int] = (64, 64),
        name: str = "q_network",
        method: Method = "epsilon",
        explore: int = 50,
        start: float = 1.0,
        least: float = 0.05,
        head: float = 1.0,
        seed: int = 0,
    ) -> None:
        if method not in get_args(Method):
            raise InputError(f"QNetworkPolicy: method={method!r}{nearest(str(method), get_args(Method))}")
        for option, value in (("start", start), ("least", least)):
            if method == "epsilon" and not 0 <= value <= 1:
                raise InputError(f"QNetworkPolicy: {option}={value} must be in [0, 1]")
            if method == "boltzmann" and not 0 < value < math.inf:
                raise InputError(f"QNetworkPolicy: {option}={value} must be above 0: it is a temperature")
        if explore < 1:
            raise InputError(f"QNetworkPolicy: explore={explore} must be at least 1")
        super().__init__(inputs, actions, hidden=hidden, name=name, seed=seed)
        self.method: Method = method
        self.explore, self.start, self.least = explore, float(start), float(least)
        layers = [torch.nn.ReLU() if isinstance(each, torch.nn.Tanh) else each for each in self.module.children()]
        self.head = float(head)
        with torch.no_grad():
            for parameter in layers[-1].parameters():
                parameter.mul_(self.head)
        self.module = torch.nn.Sequential(*layers)
        self.module.requires_grad_(False)  # gradients of credit leave it alone
        self.module.register_buffer("updates", torch.zeros((), dtype=torch.int64))

    @property
    def exploration(self) -> float:
        """Current exploration: ε, the probability of a random action, or the temperature τ."""
        done = min(1.0, int(self.module.get_buffer("updates")) / self.explore)
        return self.start + (self.least - self.start) * done

    def count(self) -> None:
        """Count one more update, which reduces exploration."""
        self.module.get_buffer("updates").add_(1)

    def _distribution(self, observations: Sequence[Observation]) -> tuple[np.ndarray, np.ndarray]:
        every = np.ones(self.actions, bool)
        legal = np.array([every if o.mask is None else o.mask for o in observations], bool)
        with torch.no_grad():
            chances = self._explored(super().logits(observations).double().numpy(), legal)
        with np.errstate(divide="ignore"):
            return chances, np.where(chances > 0, np.log(chances), 0.0)

    def _explored(self, worth: np.ndarray, legal: np.ndarray) -> np.ndarray:
        """Probability of each action by the worth of all, float64[n, actions]."""
        worth = np.where(legal, worth, -np.inf)
        best = worth == worth.max(axis=1, keepdims=True)
        if self.method == "boltzmann":
            chances = np.exp((worth - worth.max(axis=1, keepdims=True)) / self.exploration)
            chances /= chances.sum(1, keepdims=True)
        else:
            chances = (1 - self.exploration) * best / best.sum(1, keepdims=True)
            chances += self.exploration * legal / legal.sum(1, keepdims=True)
        return np.asarray(chances)

    def logits(self, observations: Sequence[Observation]) -> torch.Tensor:
        """Logarithms of the probabilities, [observations, actions]."""
        return torch.from_numpy(np.log(np.maximum(self._distribution(observations)[0], 1e-12)))

    def logits_of_rows(self, rows: pl.DataFrame) -> torch.Tensor:
        """Logarithms of the probabilities for rows of a table, [rows, actions], by what is legal in each."""
        with torch.no_grad():
            worth = super().logits_of_rows(rows).double().cpu().numpy()
        return torch.from_numpy(np.log(np.maximum(self._explored(worth, self._legal_of_rows(rows)), 1e-12)))

    def values(self, features: torch.Tensor) -> torch.Tensor:
        """Value of every action, [..., actions], with gradient where the parameters require one."""
        found: torch.Tensor = self.module(features)
        return found
