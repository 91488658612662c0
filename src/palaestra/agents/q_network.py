"""`QNetworkPolicy`: a network for the worth of each action, acted on greedily but for some exploration.

The learner `value_decomposition` trains it. Left out: recurrent networks, duelling heads, noisy layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from palaestra.agents.mlp import MLPPolicy
from palaestra.errors import InputError

if TYPE_CHECKING:
    from palaestra.envs.protocol import Observation


class QNetworkPolicy(MLPPolicy):
    """With probability ε any legal action, else the best one; ReLU layers of sizes `hidden`.

    ε falls linearly from 1 to `least` over the first `explore` updates (of the learner, one per iteration).
    inputs, actions, hidden, seed: as in `MLPPolicy`.

    Raises:
        InputError: explore or least is out of range.
    """

    KIND = "q_network"
    SETTINGS = ("inputs", "actions", "hidden", "name", "explore", "least")

    def __init__(
        self,
        inputs: int,
        actions: int,
        *,
        hidden: Sequence[int] = (64, 64),
        name: str = "q_network",
        explore: int = 50,
        least: float = 0.05,
        seed: int = 0,
    ) -> None:
        if explore < 1 or not 0 <= least <= 1:
            raise InputError(f"QNetworkPolicy: explore={explore} must be at least 1, least={least} in [0, 1]")
        super().__init__(inputs, actions, hidden=hidden, name=name, seed=seed)
        self.explore, self.least = explore, float(least)
        layers = [torch.nn.ReLU() if isinstance(each, torch.nn.Tanh) else each for each in self.module.children()]
        self.module = torch.nn.Sequential(*layers)
        self.module.requires_grad_(False)  # gradients of credit leave it alone
        self.module.register_buffer("updates", torch.zeros((), dtype=torch.int64))

    @property
    def epsilon(self) -> float:
        """Probability of an action that is drawn from all."""
        done = min(1.0, int(self.module.get_buffer("updates")) / self.explore)
        return 1.0 + (self.least - 1.0) * done

    def count(self) -> None:
        """One more update: explore less."""
        self.module.get_buffer("updates").add_(1)

    def _distribution(self, observations: Sequence[Observation]) -> tuple[np.ndarray, np.ndarray]:
        every = np.ones(self.actions, bool)
        legal = np.array([every if o.mask is None else o.mask for o in observations], bool)
        with torch.no_grad():
            worth = np.where(legal, super().logits(observations).double().numpy(), -np.inf)
        best = worth == worth.max(axis=1, keepdims=True)
        chances = (1 - self.epsilon) * best / best.sum(1, keepdims=True)
        chances += self.epsilon * legal / legal.sum(1, keepdims=True)
        with np.errstate(divide="ignore"):
            return chances, np.where(chances > 0, np.log(chances), 0.0)

    def logits(self, observations: Sequence[Observation]) -> torch.Tensor:
        """Logarithms of the probabilities, [observations, actions]."""
        return torch.from_numpy(np.log(np.maximum(self._distribution(observations)[0], 1e-12)))

    def values(self, features: torch.Tensor) -> torch.Tensor:
        """Worth of every action, [..., actions], with gradient where the parameters ask for one."""
        found: torch.Tensor = self.module(features)
        return found
