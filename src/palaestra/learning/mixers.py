"""Mixers: the worth of a team's joint action from what its agents' own actions are worth to them.

VDN (arXiv 1706.05296) adds; QMIX (arXiv 1803.11485) combines monotonically, with weights that depend on what all see,
so that each agent's own best action is part of the team's best one in both.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Sum(nn.Module):
    """VDN mixer, a torch module: Q_tot = Σ_i Q_i."""

    def forward(self, own: Tensor, state: Tensor) -> Tensor:
        """Q_tot [rows] of own values [rows, agents]; the state is ignored."""
        return own.sum(-1)


class Monotonic(nn.Module):
    """QMIX mixer of `agents`, states of `size`: Q_tot = w₂(s)ᵀ ELU(w₁(s)ᵀQ + b₁(s)) + b₂(s) with w₁, w₂ >= 0.

    Args:
        agents: how many. size: of the state. width: hidden units of the mixture.
    """

    def __init__(self, agents: int, size: int, width: int = 32) -> None:
        super().__init__()
        self.agents, self.width = agents, width
        self.weights = nn.Linear(size, agents * width)
        self.offset = nn.Linear(size, width)
        self.last_weights = nn.Linear(size, width)
        self.last_offset = nn.Sequential(nn.Linear(size, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, own: Tensor, state: Tensor) -> Tensor:
        """Q_tot [rows] of own values [rows, agents] and the state [rows, size]."""
        weights = self.weights(state).abs().view(-1, self.agents, self.width)
        hidden = nn.functional.elu((own[:, None] @ weights)[:, 0] + self.offset(state))
        found: Tensor = (hidden * self.last_weights(state).abs()).sum(-1) + self.last_offset(state)[:, 0]
        return found


def mixer(name: str, agents: int, size: int, seed: int) -> nn.Module | None:
    """New mixer of states of `size`, by name: `sum` (VDN), `monotonic` (QMIX), or None for `none`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return None if name == "none" else Sum() if name == "sum" else Monotonic(agents, size)
